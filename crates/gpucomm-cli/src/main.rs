//! The `gpucomm` program.

fn main() -> std::process::ExitCode {
    gpucomm_cli::main()
}

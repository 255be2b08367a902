//! Options of nccl-tests that are not offered: taken where they ask for what is done anyway, so that a command line of nccl-tests
//! can be used as it is.

use clap::Args;

/// Each is checked when it is read, and then forgotten.
#[derive(Debug, Args)]
pub struct Neutral {
    #[arg(short = 'm', long = "agg_iters", value_name = "N", hide = true, value_parser = aggregate)]
    aggregate: Option<()>,
    #[arg(short = 'N', long = "run_cycles", value_name = "N", hide = true, value_parser = cycles)]
    cycles: Option<()>,
    #[arg(short = 'p', long = "parallel_init", value_name = "0|1", hide = true, value_parser = parallel)]
    parallel: Option<()>,
    #[arg(short = 'z', long = "blocking", value_name = "0|1", hide = true, value_parser = blocking)]
    blocking: Option<()>,
    #[arg(short = 'y', long = "stream_null", value_name = "0|1", hide = true, value_parser = null)]
    null: Option<()>,
    #[arg(short = 'C', long = "report_cputime", value_name = "0|1", hide = true, value_parser = host_time)]
    host_time: Option<()>,
    #[arg(short = 'S', long = "report_timestamps", value_name = "0|1", hide = true, value_parser = stamps)]
    stamps: Option<()>,
    #[arg(short = 'M', long = "memory_report", alias = "memory", value_name = "0|1", hide = true, value_parser = memory)]
    memory: Option<()>,
    #[arg(short = 'x', long = "cta_policy", value_name = "0..2", hide = true, value_parser = policy)]
    policy: Option<()>,
    #[arg(short = 'D', long = "device_implementation", value_name = "N", hide = true, value_parser = kernels)]
    kernels: Option<()>,
    /// Says nothing where `-D` is 0, whatever it is.
    #[arg(short = 'V', long = "device_cta_count", value_name = "N", hide = true)]
    blocks: Option<u32>,
}

/// `text`, if it is the value that changes nothing; else what to use instead.
fn only(neutral: u32, text: &str, instead: &str) -> Result<(), String> {
    match text.parse::<u32>() {
        Ok(value) if neutral == value => Ok(()),
        _ => Err(format!("expected {neutral}: {instead}")),
    }
}

fn aggregate(text: &str) -> Result<(), String> {
    only(1, text, "operations are not aggregated; -n times more of them")
}

fn cycles(text: &str) -> Result<(), String> {
    only(1, text, "there is one table a run; start the program again for another")
}

fn parallel(text: &str) -> Result<(), String> {
    only(0, text, "the ranks of a process start together; --procs starts each in a process of its own")
}

fn blocking(text: &str) -> Result<(), String> {
    only(0, text, "operations are waited for together; -n 1 -w 0 waits for a single one")
}

fn null(text: &str) -> Result<(), String> {
    only(0, text, "each rank has a stream of its own, never the default stream")
}

fn host_time(text: &str) -> Result<(), String> {
    only(0, text, "times are those of the device; `cargo bench --bench enqueue` measures the host's")
}

fn stamps(text: &str) -> Result<(), String> {
    only(0, text, "rows have no time of day; pipe the output through `ts`")
}

fn memory(text: &str) -> Result<(), String> {
    only(0, text, "memory is not reported; nvidia-smi shows it")
}

fn policy(text: &str) -> Result<(), String> {
    only(0, text, "set NCCL_CTA_POLICY in the environment instead, to 1")
}

fn kernels(text: &str) -> Result<(), String> {
    only(0, text, "it times NCCL's own operations; -R 2 gives them symmetric windows")
}

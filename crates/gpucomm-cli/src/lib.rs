//! The `gpucomm` program: what is installed (`info`), what will go wrong (`doctor`), how fast it is
//! (`perf`), why a program hangs (`diagnose`), ranks that are started together (`run`), and a store
//! at which ranks meet (`store`).
//!
//! The program is a library with one function, so that cargo compiles it while it still optimises
//! `gpucomm`. Nothing else is public, and the function may change with any version.

mod diagnose;
mod doctor;
mod failure;
mod gpus;
mod info;
mod launch;
mod libraries;
mod neutral;
mod notice;
mod options;
mod output;
mod perf;
mod run;
mod size;
mod store;

use std::process::ExitCode;

use failure::Failure;
use options::Command;

/// Runs the program with the arguments of this process, and returns its exit status.
pub fn main() -> ExitCode {
    notice::postpone();
    let result = match options::read(std::env::args_os()) {
        Ok(Command::Info(options)) => info::run(&options).map(|()| ExitCode::SUCCESS),
        Ok(Command::Perf(options)) => perf::run(*options).map(verdict),
        #[cfg(feature = "nvshmem")]
        Ok(Command::PerfNvshmem(options)) => perf::nvshmem::run(&options).map(verdict),
        Ok(Command::Diagnose(options)) => diagnose::run(&options),
        Ok(Command::Doctor(options)) => doctor::run(&options).map(verdict),
        Ok(Command::Run(options)) => run::run(&options),
        Ok(Command::Store(options)) => store::run(&options),
        Ok(Command::Text(text)) => output::line(text.trim_end()).map(|()| ExitCode::SUCCESS),
        Err(failure) => Err(failure),
    };
    match result {
        Ok(code) => code,
        // The reader of the output has closed it, as `| head` does, so there is nowhere to print an error.
        Err(Failure::Closed) => ExitCode::FAILURE,
        Err(failure) => {
            output::note(&failure.one_line());
            ExitCode::from(if matches!(failure, Failure::Usage(_)) { 2 } else { 1 })
        }
    }
}

/// Whether all values were right.
fn verdict(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

//! The `gpucomm` program: what is installed (`info`), how fast it is (`perf`), and why a program hangs (`diagnose`).

mod diagnose;
mod failure;
mod info;
mod neutral;
mod notice;
mod options;
mod output;
mod perf;
mod size;

use std::process::ExitCode;

use failure::Failure;
use options::Command;

fn main() -> ExitCode {
    notice::postpone();
    let result = match options::read(std::env::args_os()) {
        Ok(Command::Info(options)) => info::run(&options).map(|()| true),
        Ok(Command::Perf(options)) => perf::run(*options),
        Ok(Command::Diagnose(options)) => diagnose::run(&options).map(|()| true),
        Ok(Command::Text(text)) => output::line(text.trim_end()).map(|()| true),
        Err(failure) => Err(failure),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // Whoever read our output has gone, as with `| head`: nobody is left to tell.
        Err(Failure::Closed) => ExitCode::FAILURE,
        Err(failure) => {
            output::note(&failure.one_line());
            ExitCode::from(if matches!(failure, Failure::Usage(_)) { 2 } else { 1 })
        }
    }
}

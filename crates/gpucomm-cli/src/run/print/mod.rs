//! What other engines take to start the ranks, on one machine or several: a line, or a manifest.

mod kubernetes;
mod line;
mod quote;

use crate::failure::{Failure, Result};
use crate::options::{Engine, RunOptions};
use crate::output;

/// What is printed for `engine`.
pub fn text(engine: Engine, ranks: usize, options: &RunOptions) -> Result<String> {
    let job = Job {
        ranks,
        nodes: options.nodes,
        local: ranks / options.nodes,
        prefix: options.prefix,
        max_restarts: options.max_restarts,
        env: options.env.iter().map(|(name, value)| Ok((utf8(name)?, utf8(value)?))).collect::<Result<_>>()?,
        command: options.command.iter().map(|word| utf8(word)).collect::<Result<_>>()?,
    };
    if !gpus() && matches!(engine, Engine::Srun | Engine::K8s) {
        output::note("this program has the emulator in place of GPUs: what is printed asks for none");
    }
    match engine {
        Engine::Srun => Ok(line::srun(&job)),
        Engine::Mpirun => line::mpirun(&job),
        Engine::Torchrun => Ok(line::torchrun(&job)),
        Engine::K8s => Ok(kubernetes::manifest(&job)),
    }
}

/// What is to be started, as text.
struct Job<'a> {
    ranks: usize,
    nodes: usize,
    /// Ranks on each node.
    local: usize,
    prefix: bool,
    max_restarts: usize,
    env: Vec<(&'a str, &'a str)>,
    command: Vec<&'a str>,
}

fn utf8(text: &std::ffi::OsStr) -> Result<&str> {
    let no = || Failure::usage(format!("{} is no UTF-8, and cannot be printed (--print)", text.to_string_lossy()));
    text.to_str().ok_or_else(no)
}

/// Whether ranks need GPUs: not with the emulator.
fn gpus() -> bool {
    gpucomm::backend() == gpucomm::Backend::Nvidia
}

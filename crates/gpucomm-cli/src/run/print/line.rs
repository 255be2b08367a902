//! Lines for a shell: srun, mpirun, torchrun.

use super::quote::quote;
use super::{Job, gpus};
use crate::failure::{Failure, Result};

/// Slurm's. It starts the tasks of an allocation, or makes one; a program finds its rank in SLURM_PROCID and the like.
pub fn srun(job: &Job) -> String {
    let mut words = assignments(job);
    words.push("srun".to_owned());
    words.push(format!("--nodes={}", job.nodes));
    words.push(format!("--ntasks={}", job.ranks));
    words.push(format!("--ntasks-per-node={}", job.local));
    if gpus() {
        // All tasks of a node see all of its GPUs, which NCCL needs to connect them.
        words.push(format!("--gpus-per-node={}", job.local));
    }
    words.push("--kill-on-bad-exit=1".to_owned());
    if job.prefix {
        words.push("--label".to_owned());
    }
    line(words, job)
}

/// Open MPI's, of version 4 or 5. On several nodes it takes them from Slurm or the like, or from
/// --host and --hostfile; MASTER_ADDR names the one of rank 0.
pub fn mpirun(job: &Job) -> Result<String> {
    if job.command.contains(&":") {
        return Err(Failure::usage("mpirun takes an argument `:` for the end of the program's: it cannot have one"));
    }
    let mut words = vec!["mpirun".to_owned(), "-n".to_owned(), job.ranks.to_string()];
    words.extend(["--map-by".to_owned(), format!("ppr:{}:node", job.local)]);
    if job.prefix {
        words.push("--tag-output".to_owned());
    }
    let names_a_place = |name: &str| matches!(name, "MASTER_ADDR" | "GPUCOMM_STORE");
    if job.nodes > 1 && !job.env.iter().any(|(name, _)| names_a_place(name)) {
        let first = r#"MASTER_ADDR="${MASTER_ADDR:?is to name the host of rank 0}""#;
        words.extend(["-x".to_owned(), first.to_owned()]);
    }
    for (name, value) in &job.env {
        words.extend(["-x".to_owned(), quote(&format!("{name}={value}"))]);
    }
    Ok(line(words, job))
}

/// PyTorch's, to be said on each node. Where there are several, MASTER_ADDR names the first.
pub fn torchrun(job: &Job) -> String {
    let mut words = assignments(job);
    words.push("torchrun".to_owned());
    words.push(format!("--nnodes={}", job.nodes));
    words.push(format!("--nproc_per_node={}", job.local));
    if job.nodes == 1 {
        words.push("--standalone".to_owned());
    } else {
        words.push("--rdzv_backend=c10d".to_owned());
        words.push(r#"--rdzv_endpoint="${MASTER_ADDR:?is to name the first node}:${MASTER_PORT:-29500}""#.to_owned());
        words.push(r#"--rdzv_id="${RUN_ID:-gpucomm}""#.to_owned());
    }
    words.push(format!("--max_restarts={}", job.max_restarts));
    words.push("--no_python".to_owned());
    line(words, job)
}

/// Variables for a program that passes on its own environment.
fn assignments(job: &Job) -> Vec<String> {
    if job.env.is_empty() {
        return Vec::new();
    }
    let variables = job.env.iter().map(|(name, value)| quote(&format!("{name}={value}")));
    std::iter::once("env".to_owned()).chain(variables).collect()
}

fn line(mut words: Vec<String>, job: &Job) -> String {
    words.extend(job.command.iter().map(|word| quote(word)));
    words.join(" ")
}

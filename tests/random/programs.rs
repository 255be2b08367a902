//! Right programs: every answer is right.

use gpucomm::nccl::AbortOutcome;

use crate::cliques::{self, PATIENT};
use crate::program::Program;
use crate::settings::{Batch, Run, slower};

/// How many programs a clique runs.
const PROGRAMS: u64 = 5;

pub fn run() {
    let mut run = Run::begin("programs", 60, 2, PATIENT);
    while let Some(batch) = run.batch(PROGRAMS) {
        clique(&batch);
    }
}

fn clique(batch: &Batch) {
    let clique = cliques::start(batch, PATIENT);
    for seed in batch.seeds() {
        cliques::right(&clique, batch, Program::draw(batch, seed, true));
    }
    match batch.first % 3 {
        0 => drop(clique),
        1 => clique.close_timeout(slower(PATIENT)).expect("the end of a clique that works"),
        _ => assert_ne!(clique.abort("the end of the programs"), AbortOutcome::StillRunning),
    }
}

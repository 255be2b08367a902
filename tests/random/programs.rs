//! Right programs: every answer is right.

use std::sync::Arc;
use std::time::Duration;

use gpucomm::{Clique, Device};

use crate::outcome;
use crate::program::Program;
use crate::settings::{Batch, Run};
use crate::watch;

/// How many programs a clique runs.
const PROGRAMS: u64 = 5;

pub fn run() {
    let mut run = Run::begin("programs", 14, Duration::from_secs(20));
    while let Some(batch) = run.batch(PROGRAMS) {
        clique(&batch);
    }
}

/// The first devices, in an order drawn from the seed.
pub fn devices(batch: &Batch) -> Vec<Device> {
    let mut devices = Device::all().expect("devices");
    devices.truncate(batch.ranks);
    fastrand::Rng::with_seed(batch.first).shuffle(&mut devices);
    devices
}

fn clique(batch: &Batch) {
    let clique = Clique::init_all(&devices(batch)).expect("a clique");
    for seed in batch.seeds() {
        let repeat = batch.repeat(seed);
        let program = Arc::new(Program::draw(seed, batch.ranks, batch.steps, true));
        watch::begin(repeat.clone(), &program);
        let outcomes = outcome::of_ranks(&clique, |comm| program.run(comm));
        outcomes.tell(&program);
        assert!(outcomes.all_right(), "a right program failed: {repeat}");
    }
    match batch.first % 3 {
        0 => drop(clique),
        1 => clique.close(Duration::from_secs(20)).expect("the end of a clique that works"),
        _ => {
            let ended = clique.abort("the end of the programs");
            assert_ne!(
                ended,
                gpucomm::nccl::AbortOutcome::StillRunning,
                "{}",
                batch.repeat(batch.first + batch.seeds - 1)
            );
        }
    }
}

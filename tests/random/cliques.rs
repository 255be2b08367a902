//! Cliques that run programs.

use std::sync::Arc;
use std::time::Duration;

use gpucomm::nccl::{Config, InitOptions};
use gpucomm::{Clique, Device};

use crate::outcome;
use crate::program::Program;
use crate::settings::{Batch, rng, slower};
use crate::watch;

/// What calls of programs may take that nothing disturbs.
pub const PATIENT: Duration = Duration::from_secs(20);

/// The first devices, in an order drawn from the seed.
fn devices(batch: &Batch) -> Vec<Device> {
    let mut devices = Device::all().expect("devices");
    devices.truncate(batch.ranks);
    rng(batch.first, "devices").shuffle(&mut devices);
    devices
}

/// Whether what is split off shares its resources.
pub fn shares(batch: &Batch) -> bool {
    rng(batch.first, "shares").bool()
}

/// A clique whose calls, and all other waits from now on, take so long at most.
pub fn start(batch: &Batch, timeout: Duration) -> Clique {
    // SAFETY: messages here are too short for NCCL to register memory, and where ranks are aborted the process does not free memory that
    // their kernels may still use before it has told that they are still running, and ended.
    let config = unsafe { Config::new().force_windows() }.split_share(shares(batch));
    let options = InitOptions { timeout: slower(PATIENT), config };
    let clique = Clique::init_all_with(&devices(batch), &options)
        .unwrap_or_else(|error| panic!("no clique: {error}: {}", batch.repeat(batch.first)));
    gpucomm::set_default_timeout(slower(timeout));
    clique.ranks().iter().for_each(|comm| comm.set_timeout(slower(timeout)));
    clique
}

/// A program of which every answer must be right, and come.
pub fn right(clique: &Clique, batch: &Batch, program: Program) {
    let (repeat, program) = (batch.repeat(program.seed), Arc::new(program));
    watch::begin(&repeat, &program);
    let outcomes = outcome::of_ranks(clique, |comm| program.run(comm));
    outcomes.tell(&program);
    assert!(outcomes.all_right(), "a right program failed: {repeat}");
}

/// What went before has broken nothing: a new clique on the same devices works.
pub fn still_works(batch: &Batch, seed: u64) {
    let clique = start(batch, PATIENT);
    right(&clique, batch, Program::draw(&Batch { steps: 12, keep: None, ..*batch }, seed, false));
    clique.close(slower(PATIENT)).unwrap_or_else(|error| panic!("close: {error}: {}", batch.repeat(seed)));
}

//! Cliques that run programs.

use std::sync::Arc;
use std::time::Duration;

use gpucomm::nccl::{Config, InitOptions};
use gpucomm::{Clique, Device};

use crate::configs::Settings;
use crate::outcome;
use crate::places::places;
use crate::program::Program;
use crate::settings::{Batch, rng, slower};
use crate::watch;

/// What calls of programs may take that nothing disturbs.
pub const PATIENT: Duration = Duration::from_secs(20);

/// The first devices, in an order drawn from the seed.
fn devices(batch: &Batch) -> Vec<Device> {
    let mut devices = places();
    devices.truncate(batch.ranks);
    rng(batch.first, "devices").shuffle(&mut devices);
    devices
}

/// Whether what is split off shares its resources.
pub fn shares(batch: &Batch) -> bool {
    rng(batch.first, "shares").bool()
}

/// How the communicator of these programs is configured, on all ranks.
pub fn config(batch: &Batch) -> Config {
    Settings::draw(&mut rng(batch.first, "config")).config()
}

/// A clique that ends in order, whose calls, and all other waits from now on, take so long at most.
pub fn start(batch: &Batch, timeout: Duration) -> Clique {
    // SAFETY: messages here are too short for NCCL to register memory, and no rank ends before the others.
    start_with(batch, timeout, unsafe { config(batch).with_force_windows() })
}

/// The same, where ranks end at any time: with windows only where their kernels end as well.
pub fn start_to_end(batch: &Batch, timeout: Duration) -> Clique {
    start_with(batch, timeout, config(batch))
}

fn start_with(batch: &Batch, timeout: Duration, config: Config) -> Clique {
    let config = config.with_split_share(shares(batch));
    let options = InitOptions::new().with_timeout(slower(PATIENT)).with_config(config);
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
    clique.close_timeout(slower(PATIENT)).unwrap_or_else(|error| panic!("close: {error}: {}", batch.repeat(seed)));
}

//! A process a rank, which compare over an exchange what they do: right programs, programs in which one rank does one thing
//! otherwise, and programs in which one rank is lost.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpucomm::exchange::{Directory, Exchange};
use gpucomm::nccl::InitOptions;
use gpucomm::{Communicator, Error};

use crate::cliques::{PATIENT, config};
use crate::disagree;
use crate::lost::{self, Loss};
use crate::process::{Role, all_succeed};
use crate::processes;
use crate::program::Program;
use crate::rank::Rank;
use crate::settings::{Batch, Run, rng, slower};
use crate::watch::{self, say};

/// The roles of ranks whose programs are right, of ranks one of which differs, and of ranks one of which is lost.
const RIGHT: &str = "checked";
const DIFFERS: &str = "checked, one differs";
const LOST: &str = "checked, one is lost";

/// In the environment of a rank: the directory in which all meet.
const PLACE: &str = "GPUCOMM_RANDOM_PLACE";

/// How many programs a communicator runs.
const PROGRAMS: u64 = 3;

/// What calls may take where what differs may only be found by who waits for a message that does not come.
const SHORT: Duration = Duration::from_secs(2);

pub fn run() {
    let mut run = Run::begin("checked", 30, 1, PATIENT);
    let (mut ways, mut losses, mut slowest) = (BTreeMap::<&str, u64>::new(), BTreeMap::new(), Duration::ZERO);
    while let Some(batch) = run.batch(1) {
        let repeat = batch.repeat(batch.first);
        // By the seed alone, so that it repeats the same.
        let kind = rng(batch.first, "kind").u32(..3);
        let place = Place::new();
        let start =
            |batch: &Batch, role| processes::start_in(batch, role, &[(PLACE, place.0.to_str().expect("a path"))]);
        if batch.ranks == 1 || kind == 0 {
            all_succeed(start(&Batch { seeds: PROGRAMS, ..batch }, RIGHT), slower(2 * PATIENT));
            continue;
        }
        if kind == 1 {
            let loss = Loss::draw(&batch);
            say(&format!("{loss:?}: {repeat}"));
            loss.finish(start(&batch, LOST));
            *losses.entry(loss.way).or_insert(0) += 1;
            watch::moved();
            continue;
        }
        let deviant = disagree::draw(&Program::draw(&batch, batch.first, true), &batch);
        let begin = Instant::now();
        for child in start(&batch, DIFFERS) {
            let end = child.finish(slower(2 * PATIENT));
            assert!(end.status.success(), "{deviant:?}: {}: {}: {repeat}\n{}", end.what, end.status, end.text);
        }
        slowest = slowest.max(begin.elapsed());
        *ways.entry(deviant.deviation.name).or_default() += 1;
        watch::moved();
    }
    say(&format!("checked: one rank differed in {ways:?}, all of it took {slowest:.1?} at most"));
    say(&format!("checked: one rank was lost: {losses:?}"));
}

/// A directory, for as long as this lives.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        let name = format!("gpucomm-random-{}-{:016x}", std::process::id(), fastrand::u64(..));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One rank.
pub fn child() {
    if let Some(role) = Role::of_this_process(RIGHT) {
        let mut run = Run::begin("checked", 30, 60, PATIENT);
        let batch = run.batch(u64::MAX).expect("seeds");
        let (comm, _exchange) = joined(&role, &batch);
        processes::run_all(&role, &batch, comm);
    }
    if let Some(role) = Role::of_this_process(DIFFERS) {
        differs(&role);
    }
    if let Some(role) = Role::of_this_process(LOST) {
        lost::child(&role);
    }
}

/// The communicator of a rank, and what it compares over.
pub fn joined(role: &Role, batch: &Batch) -> (Communicator, Exchange) {
    let place = std::env::var(PLACE).expect(PLACE);
    let exchange = Exchange::join(Directory::open(place, role.rank, role.size).expect("a store")).expect("an exchange");
    let options =
        InitOptions::new().with_timeout(gpucomm::default_timeout()).with_config(config(batch)).with_checked(true);
    // SAFETY: the ranks do the same, but for one, with what they compare.
    let comm = unsafe { Communicator::init_rank_over(role.device().expect("a device"), &exchange, &options) };
    let comm = comm.expect("a communicator");
    Rank::connect(&comm).expect("connections");
    (comm, exchange)
}

/// One program, which ends with an error: at once, and the same on all, where collectives differ.
fn differs(role: &Role) {
    let mut run = Run::begin("checked", 30, 60, PATIENT);
    let batch = run.batch(u64::MAX).expect("a seed");
    let (comm, _exchange) = joined(role, &batch);
    let program = Arc::new(Program::draw(&batch, batch.first, true));
    let deviant = disagree::draw(&program, &batch);
    if !deviant.deviation.at_once {
        gpucomm::set_default_timeout(slower(SHORT));
        comm.set_timeout(slower(SHORT));
    }
    watch::begin(&batch.repeat(batch.first), &program);
    let error = program.run_deviating(&comm, &deviant).expect_err("somebody differs");
    say(&format!("ended with {error}"));
    let expected = match &error {
        Error::Disagreement { .. } => true,
        Error::Timeout { .. } | Error::Aborted { .. } | Error::Departed { .. } => !deviant.deviation.at_once,
        _ => false,
    };
    let step = watch::step_of(role.rank);
    assert!(expected, "step {step}: {error:?}\n  in {}", program.doing(step));
}

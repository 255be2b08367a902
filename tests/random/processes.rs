//! A process a rank: right programs, and programs in the midst of which one process is killed or stopped.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpucomm::nccl::InitOptions;
use gpucomm::{Backend, Communicator, Error};

use crate::cliques::{PATIENT, config, shares};
use crate::process::{Child, Role, all_succeed, spawn_all};
use crate::program::Program;
use crate::rank::Rank;
use crate::settings::{Batch, Run, rng, slower};
use crate::watch::{self, say};

/// The path of the test that a child runs.
const CHILD: &str = "child";

/// The role of ranks whose programs are right, and of ranks one of which is killed.
const RIGHT: &str = "right";
const BEREFT: &str = "bereft";

/// How many programs a communicator runs.
const PROGRAMS: u64 = 3;

/// What calls of ranks that are bereft of one may take.
const TIMEOUT: Duration = Duration::from_secs(3);

/// How a child ends whose programs ended with an error.
const FAILED: i32 = 3;

pub fn run() {
    let mut run = Run::begin("processes", 40, 1, PATIENT);
    let (mut kills, mut slowest) = (0, Duration::ZERO);
    while let Some(batch) = run.batch(PROGRAMS) {
        let mut rng = rng(batch.first, "processes");
        let repeat = Repeat(batch.repeat(batch.first + batch.seeds - 1));
        if batch.ranks > 1 && rng.u32(..4) == 0 {
            slowest = slowest.max(bereft(&batch));
            kills += 1;
        } else {
            all_succeed(start(&batch, RIGHT), slower(2 * PATIENT));
        }
        std::mem::forget(repeat);
        watch::moved();
    }
    say(&format!("processes: {kills} were killed or stopped, the slowest survivor ended {slowest:.1?} after that"));
}

/// Says how to repeat what failed.
struct Repeat(String);

impl Drop for Repeat {
    fn drop(&mut self) {
        say(&self.0);
    }
}

fn start(batch: &Batch, role: &str) -> Vec<Child> {
    start_in(batch, role, &[])
}

/// Starts the ranks of a batch, which have this in their environment beside.
pub fn start_in(batch: &Batch, role: &str, also: &[(&str, &str)]) -> Vec<Child> {
    let environment = batch.environment(batch.first + batch.seeds - 1);
    let mut environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    environment.push(("NCCL_COMM_SPLIT_SHARE_RESOURCES", if shares(batch) { "1" } else { "0" }));
    environment.extend(also);
    spawn_all(CHILD, role, batch.ranks, &environment)
}

/// Which rank sends itself a signal, which one, and when.
fn victim(batch: &Batch) -> (usize, &'static str, Duration) {
    let mut rng = rng(batch.first, "victim");
    let longest = if gpucomm::backend() == Backend::Nvidia { 500 } else { 100 };
    // One that is stopped is as if it hung, or its machine were gone.
    let signal = if rng.u32(..4) == 0 { "-STOP" } else { "-KILL" };
    (rng.usize(..batch.ranks), signal, Duration::from_millis(rng.u64(..longest)))
}

/// One rank is killed or stopped at a random moment. How long the slowest of the others then took.
fn bereft(batch: &Batch) -> Duration {
    let mut children = start(batch, BEREFT);
    for child in &mut children {
        child.wait_for("begins", slower(PATIENT));
    }
    let (victim, _, delay) = victim(batch);
    let killed = Instant::now() + delay;
    // Killed in any case, when it is dropped.
    let _victim = children.swap_remove(victim);
    for child in children {
        let end = child.finish(slower(PATIENT));
        assert_eq!(end.status.code(), Some(FAILED), "{}: {}\n{}", end.what, end.status, end.text);
    }
    killed.elapsed()
}

/// One rank.
pub fn child() {
    if let Some(role) = Role::of_this_process(RIGHT) {
        right(&role);
    }
    if let Some(role) = Role::of_this_process(BEREFT) {
        let error = left_behind(&role);
        say(&format!("ended with {error}"));
        assert!(matches!(error, Error::Timeout { .. } | Error::Aborted { .. } | Error::Nccl { .. }), "{error:?}");
        std::process::exit(FAILED);
    }
}

/// The communicator of a rank, which is connected with every other.
pub fn joined(role: &Role, batch: &Batch) -> Communicator {
    let options =
        InitOptions::new().with_timeout(gpucomm::default_timeout()).with_config(config(batch)).with_checked(false);
    let comm = role.join_with(&options).expect("a communicator");
    Rank::connect(&comm).expect("connections");
    comm
}

fn right(role: &Role) {
    let mut run = Run::begin("processes", 40, 60, PATIENT);
    let batch = run.batch(u64::MAX).expect("seeds");
    run_all(role, &batch, joined(role, &batch));
}

/// Runs the programs of a batch, which are right.
pub fn run_all(role: &Role, batch: &Batch, comm: Communicator) {
    for seed in batch.seeds() {
        let program = Arc::new(Program::draw(batch, seed, false));
        watch::begin(&batch.repeat(seed), &program);
        if let Err(error) = program.run(&comm) {
            let step = watch::step_of(role.rank);
            panic!("seed {seed}, rank {}, step {step}: {error}\n  in {}", role.rank, program.doing(step));
        }
    }
    comm.close_timeout(slower(PATIENT)).expect("the end of a communicator that works");
}

/// Goes on with programs until an error comes.
fn left_behind(role: &Role) -> Error {
    let mut run = Run::begin("processes", 40, 60, TIMEOUT);
    let batch = run.batch(1).expect("a seed");
    let comm = joined(role, &batch);
    say("begins");
    let (victim, signal, delay) = victim(&batch);
    if role.rank == victim {
        std::thread::spawn(move || {
            std::thread::sleep(delay);
            let sent = Command::new("kill").args([signal, &std::process::id().to_string()]).status();
            panic!("this process still runs: {sent:?}");
        });
    }
    for seed in batch.first.. {
        let program = Arc::new(Program::draw(&batch, seed, false));
        watch::begin(&batch.repeat(seed), &program);
        if let Err(error) = program.run(&comm) {
            return error;
        }
    }
    unreachable!("seeds do not end")
}

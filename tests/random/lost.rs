//! Checked communicators of processes one of which is lost: the others get an error, recover, and run other programs.

use std::cell::Cell;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpucomm::{Backend, Communicator, Error};

use crate::checked::joined;
use crate::cliques::PATIENT;
use crate::process::{Child, Role, all_succeed};
use crate::processes::run_all;
use crate::program::Program;
use crate::rank::Rank;
use crate::settings::{Batch, Run, rng, slower};
use crate::watch::{self, say};

/// The timeout of ranks that learn of the loss: nobody waits so long.
const LONG: Duration = Duration::from_secs(90);

/// The timeout of ranks that can only notice a loss by it.
const SHORT: Duration = Duration::from_secs(4);

/// How a rank is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Its process is killed at a random moment.
    Killed,
    /// Its process is stopped at a random moment, as if it hung.
    Stopped,
    /// Its process exits after some steps.
    Exits,
    /// It drops its communicator and its exchange after some steps.
    Leaves,
}

/// Which rank is lost, and when.
#[derive(Debug, Clone, Copy)]
pub struct Loss {
    rank: usize,
    pub way: Way,
    after: Duration,
    steps: usize,
}

impl Loss {
    pub fn draw(batch: &Batch) -> Self {
        let mut rng = rng(batch.first, "loss");
        let longest = if gpucomm::backend() == Backend::Nvidia { 500 } else { 100 };
        let way = match rng.u32(..8) {
            0 => Way::Stopped,
            1..4 => Way::Killed,
            4..6 => Way::Exits,
            _ => Way::Leaves,
        };
        let after = Duration::from_millis(rng.u64(..longest));
        Self { rank: rng.usize(..batch.ranks), way, after, steps: rng.usize(..=batch.steps) }
    }

    /// Waits for the processes of all ranks.
    pub fn finish(&self, mut children: Vec<Child>) {
        let lost = children.swap_remove(self.rank);
        // What was stopped is killed when it is dropped.
        let (_lost, ends) = match self.way {
            Way::Killed | Way::Stopped => (Some(lost), None),
            Way::Exits | Way::Leaves => (None, Some(lost)),
        };
        children.extend(ends);
        all_succeed(children, slower(4 * PATIENT));
    }
}

/// One rank of a program in which one is lost.
pub fn child(role: &Role) {
    let mut run = Run::begin("checked", 30, 60, PATIENT);
    let batch = run.batch(u64::MAX).expect("a seed");
    let loss = Loss::draw(&batch);
    let (comm, exchange) = joined(role, &batch);
    let timeout = slower(if loss.way == Way::Stopped { SHORT } else { LONG });
    gpucomm::set_default_timeout(timeout);
    comm.set_timeout(timeout);
    let exchange = exchange.with_timeout(timeout);
    if role.rank == loss.rank {
        lose(loss, &batch, comm);
        return;
    }
    survive(&batch, &comm);
    let recovered = comm.recover(&exchange).unwrap_or_else(|error| panic!("{loss:?}: recover: {error}"));
    let left: Vec<_> = (0..batch.ranks).filter(|&rank| rank != loss.rank).collect();
    assert_eq!(recovered.survivors, left, "{loss:?}");
    let (comm, exchange) = (recovered.comm, recovered.exchange);
    comm.set_timeout(slower(PATIENT));
    Rank::connect(&comm).expect("connections");
    let (batch, role) = (Batch { ranks: left.len(), ..batch }, Role { rank: comm.rank(), size: comm.size(), ..*role });
    run_all(&role, &batch, comm);
    exchange.barrier().expect("all that are left");
}

/// The program of all ranks, without what does not know the store: only a timeout ends that.
fn program(batch: &Batch) -> Program {
    let mut program = Program::draw(batch, batch.first, false);
    program.steps.retain(|step| step.hears_of_deaths());
    program
}

/// Runs the program until it fails, or to its end.
fn survive(batch: &Batch, comm: &Communicator) {
    let program = Arc::new(program(batch));
    watch::begin(&batch.repeat(batch.first), &program);
    let begun = Cell::new(Instant::now());
    let ran = Rank::new(comm).and_then(|mut rank| {
        program.run_steps(&mut rank, |_, step, rank| {
            begun.set(Instant::now());
            step.run(rank)
        })
    });
    let Err(error) = ran else { return };
    say(&format!("{:.1?} after its last step began: {error}", begun.get().elapsed()));
    let step = program.doing(watch::step_of(comm.rank()));
    let expected = match &error {
        Error::Departed { .. } | Error::Aborted { .. } | Error::Nccl { .. } | Error::Disagreement { .. } => true,
        Error::Timeout { timeout, .. } => *timeout < slower(LONG),
        _ => false,
    };
    assert!(expected, "{error:?}\n  in {step}");
    assert!(begun.get().elapsed() < slower(PATIENT), "{:?} until {error}\n  in {step}", begun.get().elapsed());
}

/// Is lost.
fn lose(loss: Loss, batch: &Batch, comm: Communicator) {
    let mut program = program(batch);
    let signal = match loss.way {
        Way::Killed => Some("-KILL"),
        Way::Stopped => Some("-STOP"),
        Way::Exits | Way::Leaves => None,
    };
    if let Some(signal) = signal {
        std::thread::spawn(move || {
            std::thread::sleep(loss.after);
            let sent = Command::new("kill").args([signal, &std::process::id().to_string()]).status();
            panic!("this process still runs: {sent:?}");
        });
    } else {
        program.steps.truncate(loss.steps);
    }
    match (program.run(&comm), loss.way) {
        (Ok(()), _) => {}
        // The others may come to the end of their programs first, and recover.
        (Err(Error::Aborted { .. }), Way::Killed | Way::Stopped) => {}
        (Err(error), _) => panic!("no rank was lost before this one: {error:?}"),
    }
    match loss.way {
        Way::Exits => std::process::exit(0),
        Way::Leaves => drop(comm),
        Way::Killed | Way::Stopped => std::thread::sleep(slower(4 * PATIENT)),
    }
}

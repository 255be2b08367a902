//! One run of a batch, which comes after those that were launched before on the same communicator, on whatever streams.

use std::sync::Arc;

use super::collective::Collective;
use super::inject::stop_for_ever;
use super::{collective, grouping, order, p2p};
use crate::cuda::core::work::{Run, Running};
use crate::lock::lock;
use crate::meet::waits::Wait;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::graphs::{Graphs, Usage};
use crate::nccl::requests::operation::Operation;
use crate::nccl::state::comm::Comm;
use crate::patience::Patience;
use crate::races::course::{Chain, Point};
use crate::races::touches::{Actor, Touching};
use crate::settings::{DeadPeer, settings};
use crate::sys::ncclResult_t;

/// Ends a batch whatever becomes of it: also when its stream drops it unrun, or it panics.
struct Ending(Arc<Comm>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.resources.progress.end();
        self.0.resources.progress.finish();
    }
}

/// The place of something that is no batch among those of a communicator, until it is dropped.
pub(crate) struct Turn(u64, Ending);

impl Turn {
    /// The next one on `comm`, for who enqueues it while holding the lock of what was `launched`.
    pub(crate) fn next(comm: &Arc<Comm>, launched: &mut u64) -> Self {
        let turn = *launched;
        *launched += 1;
        Self(turn, Ending(comm.clone()))
    }

    /// Waits until what was launched before is done. `false`: the wait was ended.
    pub(super) fn come(&self, name: &str, cancelled: &dyn Fn() -> bool) -> bool {
        wait_for_turn(&self.1.0, self.0, name, cancelled)
    }
}

/// One run of a batch.
pub(super) struct BatchRun {
    name: &'static str,
    /// Stopped with what began in this epoch of the communicator.
    epoch: u32,
    /// How many batches come before it.
    turn: u64,
    operations: Vec<Operation>,
    ending: Ending,
    stage: Stage,
    is_light: bool,
}

/// How far a run has come.
enum Stage {
    /// Its turn has not come.
    Waits,
    /// Its only operation has.
    Runs(Collective),
    /// With this, which its stream has to see.
    Ends(Failure),
}

/// The most that one that is light reads and writes on a rank, in bytes.
const LIGHT: usize = 256 << 10;

impl BatchRun {
    /// The next run on `comm`. Whoever enqueues it while holding the lock of what was `launched` keeps the order of runs on one stream.
    pub(super) fn new(
        comm: &Arc<Comm>,
        name: &'static str,
        epoch: u32,
        mut operations: Vec<Operation>,
        launched: &mut u64,
    ) -> Self {
        let mut issued = lock(&comm.issued);
        for operation in &mut operations {
            issued.operations += 1;
            operation.number = issued.operations;
            if !operation.kind.by_messages() {
                order::check(comm);
            }
        }
        drop(issued);
        let turn = *launched;
        *launched += 1;
        let alone = |operation: &Operation| {
            !operation.kind.by_messages() && operation.whole.iter().sum::<usize>() <= LIGHT && comm.size > 1
        };
        let is_light = matches!(&operations[..], [one] if alone(one)) && !comm.wishes.has_faults();
        Self { name, epoch, turn, operations, ending: Ending(comm.clone()), stage: Stage::Waits, is_light }
    }

    /// Whether a graph runs it.
    fn captured(&self) -> bool {
        self.operations.first().is_some_and(|operation| operation.captured)
    }

    /// What is done when its turn has come to an end like this.
    fn end(mut self, outcome: Outcome, running: &Running) {
        let comm = &self.ending.0;
        let stopped = || comm.is_stopped(self.epoch);
        if let Err(failure) = outcome {
            comm.fail(&failure);
            if leaves_a_kernel(&failure) {
                stop_for_ever(comm, &|| running.cancelled() || stopped());
            }
        }
        if stopped() {
            self.operations.iter().for_each(|operation| drop(operation.spoil()));
        }
        comm.resources.progress.end();
        // The memory is free for others before anybody can see that the batch is done.
        self.operations.clear();
    }
}

/// Ranks that disagree have met and parted: nobody waits. Else a kernel would go on waiting for what never comes.
fn leaves_a_kernel(failure: &Failure) -> bool {
    failure.code != ncclResult_t::ncclInvalidUsage && settings().dead_peer != DeadPeer::Ends
}

impl Run for BatchRun {
    fn tell<'a>(&'a self, tell: &mut dyn FnMut(Touching<'a>)) {
        let rank = Some(self.ending.0.rank);
        for (part, operation) in self.operations.iter().enumerate() {
            operation.tell(Actor { name: operation.kind.name(), rank, part }, tell);
        }
    }

    fn chain(&self) -> Option<&Chain> {
        let comm = &self.ending.0;
        match (comm.config.graphs, self.captured()) {
            (Graphs { usage: Usage::Mixed, .. }, _) | (_, false) => Some(&comm.resources.chain),
            (Graphs { ordered: true, .. }, true) => None,
            (Graphs { ordered: false, .. }, true) => Some(&comm.resources.mixing.graphs),
        }
    }

    fn place(&mut self, at: &Point) {
        let comm = &self.ending.0;
        let what = format!("{} of rank {}", self.name, comm.rank);
        comm.resources.mixing.launch(comm.config.graphs, self.captured(), at, &what);
    }

    fn run(mut self: Box<Self>, running: &Running) {
        let comm = Arc::clone(&self.ending.0);
        let epoch = self.epoch;
        let stopped = || comm.is_stopped(epoch);
        let cancelled = || running.cancelled() || stopped();
        let outcome = match std::mem::replace(&mut self.stage, Stage::Waits) {
            Stage::Waits if !wait_for_turn(&comm, self.turn, self.name, &cancelled) => Ok(()),
            Stage::Waits => {
                comm.resources.progress.begin();
                if comm.stopped() || stopped() { Ok(()) } else { run(&comm, &self.operations, &cancelled) }
            }
            Stage::Runs(collective) => collective.finish(&comm, &self.operations[0], &cancelled),
            Stage::Ends(failure) => Err(failure),
        };
        self.end(outcome, running);
    }

    fn is_light(&self) -> bool {
        self.is_light
    }

    fn attempt(mut self: Box<Self>, running: &Running) -> Option<Box<dyn Run>> {
        let comm = Arc::clone(&self.ending.0);
        // The thread of the stream sees to those that were stopped.
        if comm.stopped() || comm.is_stopped(self.epoch) || !comm.resources.progress.has_come(self.turn) {
            return Some(self);
        }
        match self.go_on(&comm) {
            Ok(true) => {}
            Ok(false) => return Some(self),
            Err(failure) if leaves_a_kernel(&failure) => {
                self.stage = Stage::Ends(failure);
                return Some(self);
            }
            Err(failure) => {
                self.end(Err(failure), running);
                return None;
            }
        }
        self.end(Ok(()), running);
        None
    }
}

impl BatchRun {
    /// Goes on with its only operation, whose turn has come, as far as that needs no wait. Whether it is done.
    fn go_on(&mut self, comm: &Comm) -> Outcome<bool> {
        let operation = &self.operations[0];
        let mut collective = match std::mem::replace(&mut self.stage, Stage::Waits) {
            Stage::Runs(collective) => collective,
            Stage::Ends(failure) => return Err(failure),
            Stage::Waits => {
                comm.resources.progress.begin();
                grouping::show(comm, comm.segment()?, &self.operations);
                Collective::come(comm, operation)?
            }
        };
        if !collective.attempt(comm, operation)? {
            self.stage = Stage::Runs(collective);
            return Ok(false);
        }
        // All have done their shares: this waits for nobody.
        collective.finish(comm, operation, &|| false).map(|()| true)
    }
}

/// Waits until the batches before this one are done. `false`: the wait was ended.
fn wait_for_turn(comm: &Comm, turn: u64, name: &str, cancelled: &dyn Fn() -> bool) -> bool {
    let (mut patience, mut told) = (Patience::of(comm.wishes.patience()), Wait::new(&comm.waits));
    comm.resources.progress.wait(turn, || {
        let what = format!("{name} of rank {} waits for an earlier operation on another stream", comm.rank);
        patience.check(|| format!("{what}, and"));
        told.say(what);
        cancelled()
    })
}

/// Runs a batch: its collective operations in order, then its messages together.
fn run(comm: &Comm, operations: &[Operation], cancelled: &dyn Fn() -> bool) -> Outcome {
    let segment = comm.segment()?;
    grouping::show(comm, segment, operations);
    for operation in operations {
        let Some(fault) = comm.wishes.fault(comm.rank, operation.number) else {
            if !operation.kind.by_messages() {
                collective::run(comm, operation, cancelled)?;
            }
            continue;
        };
        super::inject::suffer(comm, segment, operation, fault, cancelled)?;
        if comm.stopped() || cancelled() {
            return Ok(());
        }
        if !operation.kind.by_messages() {
            collective::run(comm, operation, cancelled)?;
        }
    }
    if comm.stopped() || cancelled() {
        return Ok(());
    }
    p2p::run(comm, operations, cancelled)
}

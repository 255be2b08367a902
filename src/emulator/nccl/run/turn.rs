//! One run of a batch, which comes after those that were launched before on the same communicator, on whatever streams.

use std::sync::Arc;

use super::inject::stop_for_ever;
use super::{collective, grouping, order, p2p};
use crate::emulator::cuda::core::work::{Run, Running};
use crate::emulator::lock::lock;
use crate::emulator::meet::waits::Wait;
use crate::emulator::nccl::basics::error::Outcome;
use crate::emulator::nccl::requests::operation::Operation;
use crate::emulator::nccl::state::comm::Comm;
use crate::emulator::patience::Patience;
use crate::emulator::races::course::Chain;
use crate::emulator::races::touches::{Actor, Touching};
use crate::emulator::settings::{DeadPeer, settings};
use crate::sys::ncclResult_t;

/// Ends a batch whatever becomes of it: also when its stream drops it unrun, or it panics.
struct Ending(Arc<Comm>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.resources.progress.end();
        self.0.resources.progress.finish();
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
}

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
        Self { name, epoch, turn, operations, ending: Ending(comm.clone()) }
    }
}

impl Run for BatchRun {
    fn tell<'a>(&'a self, tell: &mut dyn FnMut(Touching<'a>)) {
        let rank = Some(self.ending.0.rank);
        for (part, operation) in self.operations.iter().enumerate() {
            operation.tell(Actor { name: operation.kind.name(), rank, part }, tell);
        }
    }

    fn chain(&self) -> Option<&Chain> {
        Some(&self.ending.0.resources.chain)
    }

    fn run(self: Box<Self>, running: &Running) {
        let Self { name, epoch, turn, mut operations, ending } = *self;
        let comm = &ending.0;
        let stopped = || comm.is_stopped(epoch);
        let cancelled = || running.cancelled() || stopped();
        if wait_for_turn(comm, turn, name, &cancelled) {
            comm.resources.progress.begin();
            if !comm.stopped()
                && !stopped()
                && let Err(failure) = run(comm, &operations, &cancelled)
            {
                comm.fail(&failure);
                // Ranks that disagree have met and parted: nobody waits. Else a kernel would go on waiting for what never comes.
                if failure.code != ncclResult_t::ncclInvalidUsage && settings().dead_peer != DeadPeer::Ends {
                    stop_for_ever(comm, &cancelled);
                }
            }
            if stopped() {
                operations.iter().for_each(|operation| drop(operation.spoil()));
            }
            comm.resources.progress.end();
        } else if stopped() {
            operations.iter().for_each(|operation| drop(operation.spoil()));
        }
        // The memory is free for others before anybody can see that the batch is done.
        operations.clear();
        drop(ending);
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

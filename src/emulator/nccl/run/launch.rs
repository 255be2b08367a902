//! Batches: the operations of one communicator that one group launches, on the streams they were issued to.
//!
//! A batch runs on the stream of its first operation. Operations that were issued to other streams join theirs to it: the
//! batch waits for what was enqueued there before, and none goes on before the batch is done. As NCCL does it with events:
//! each wait is for something that was enqueued earlier, so waits form no circle, whatever other threads enqueue meanwhile.

use std::sync::Arc;

use super::inject::stop_for_ever;
use super::{collective, grouping, p2p};
use crate::emulator::cuda::core::work::{Run, Running};
use crate::emulator::cuda::core::{device, stream};
use crate::emulator::fault;
use crate::emulator::lock::lock;
use crate::emulator::meet::waits::Wait;
use crate::emulator::nccl::basics::error::{Failure, Outcome, cuda};
use crate::emulator::nccl::basics::kind::Kind;
use crate::emulator::nccl::requests::batch::{Batch, StreamHandle};
use crate::emulator::nccl::requests::operation::Operation;
use crate::emulator::nccl::state::comm::Comm;
use crate::emulator::patience::Patience;
use crate::emulator::settings::{DeadPeer, settings};
use crate::sys::{cudaError, cudaStream_t, ncclResult_t};

/// Ends a batch whatever becomes of it: also when its stream drops it unrun, or it panics.
struct Ending(Arc<Comm>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.progress.end();
        self.0.progress.finish();
    }
}

/// Enqueues a batch.
pub(crate) fn launch(batch: Batch) -> Outcome {
    let Batch { comm, epoch, mut operations } = batch;
    let Some(&(_, main)) = operations.first() else { return Ok(()) };
    let mut others: Vec<StreamHandle> = Vec::new();
    for (_, stream) in &operations {
        if *stream != main && !others.contains(stream) {
            others.push(*stream);
        }
    }
    check_self_messages(&comm, &operations)?;

    let mut issued = lock(&comm.issued);
    for (operation, _) in &mut operations {
        issued.operations += 1;
        operation.number = issued.operations;
    }
    let turn = issued.batches;
    issued.batches += 1;
    let ending = Ending(comm.clone());
    let name = operations.first().map_or("NCCL", |(operation, _)| operation.kind.name());
    let operations = operations.into_iter().map(|(operation, _)| operation).collect();
    // If this fails, the run is dropped, and with it `ending`, which finishes the batch.
    let run = Box::new(BatchRun { name, epoch, turn, operations, ending });
    enqueue(&comm, main, &others, name, run).map_err(|error| cuda(&format!("cannot enqueue {name}"), error))
}

/// One run of a batch.
struct BatchRun {
    name: &'static str,
    /// Stopped with what began in this epoch of the communicator.
    epoch: u32,
    /// How many batches come before it.
    turn: u64,
    operations: Vec<Operation>,
    ending: Ending,
}

impl Run for BatchRun {
    fn run(self: Box<Self>, running: &Running) {
        let Self { name, epoch, turn, mut operations, ending } = *self;
        let comm = &ending.0;
        let stopped = || comm.is_stopped(epoch);
        let cancelled = || running.cancelled() || stopped();
        if wait_for_turn(comm, turn, name, &cancelled) {
            comm.progress.begin();
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
            comm.progress.end();
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
    let (mut patience, mut told) = (Patience::new(), Wait::new(&comm.waits));
    comm.progress.wait(turn, || {
        let what = format!("{name} of rank {} waits for an earlier operation on another stream", comm.rank);
        patience.check(|| format!("{what}, and"));
        told.say(what);
        cancelled()
    })
}

/// Enqueues work. The null stream is that of the communicator's device, whatever device the launching thread has.
fn enqueue(
    comm: &Comm,
    main: StreamHandle,
    others: &[StreamHandle],
    name: &'static str,
    run: Box<dyn Run>,
) -> Result<(), cudaError> {
    let others: Vec<cudaStream_t> = others.iter().map(|stream| stream.0).collect();
    let current = device::current_device();
    device::set_current(comm.device)?;
    let enqueued = stream::enqueue(main.0, &others, name, run);
    device::set_current(current)?;
    enqueued
}

/// A rank that sends to itself must receive in the same group, and the other way round.
fn check_self_messages(comm: &Comm, operations: &[(Operation, StreamHandle)]) -> Outcome {
    let count = |kind: Kind| {
        operations.iter().filter(|(operation, _)| operation.kind == kind && operation.peer == comm.rank).count()
    };
    let (sends, receives) = (count(Kind::Send), count(Kind::Recv));
    if sends != receives {
        return Err(Failure::usage(format!(
            "rank {} sends {sends} messages to itself and receives {receives} in the same group, expected as many",
            comm.rank
        )));
    }
    Ok(())
}

/// Runs a batch: its collective operations in order, then its messages together.
fn run(comm: &Comm, operations: &[Operation], cancelled: &dyn Fn() -> bool) -> Outcome {
    let segment = comm.segment()?;
    grouping::show(comm, segment, operations);
    for operation in operations {
        let Some(fault) = fault::at(comm.rank, operation.number) else {
            if !operation.kind.message() {
                collective::run(comm, operation, cancelled)?;
            }
            continue;
        };
        super::inject::suffer(comm, segment, operation, fault, cancelled)?;
        if comm.stopped() || cancelled() {
            return Ok(());
        }
        if !operation.kind.message() {
            collective::run(comm, operation, cancelled)?;
        }
    }
    let messages: Vec<&Operation> = operations.iter().filter(|operation| operation.kind.message()).collect();
    if comm.stopped() || cancelled() {
        return Ok(());
    }
    p2p::run(comm, &messages, cancelled)
}

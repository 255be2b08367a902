//! Batches: the operations of one communicator that one group launches, on the streams they were issued to.
//!
//! A batch runs on the stream of its first operation. Operations that were issued to other streams join theirs to it: the
//! batch waits until each of those has come this far, and none goes on before the batch is done.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::comm::{Comm, lock};
use super::error::{Failure, Outcome};
use super::futex::SLICE;
use super::kind::Kind;
use super::operation::Operation;
use super::{collective, p2p};
use crate::emulator::cuda::error::meaning;
use crate::emulator::cuda::{device, stream};
use crate::emulator::fault;
use crate::emulator::patience::Patience;
use crate::sys::{cudaStream_t, ncclResult_t};

/// A stream's handle on its way to the thread that launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamHandle(pub(super) cudaStream_t);

// SAFETY: the handle is a name, only looked up and never followed.
unsafe impl Send for StreamHandle {}

/// What a group launches on one communicator.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) comm: Arc<Comm>,
    pub(super) operations: Vec<(Operation, StreamHandle)>,
}

/// Where the streams of a batch meet.
#[derive(Debug, Default)]
struct Joint {
    state: Mutex<JointState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct JointState {
    /// Other streams that have come this far.
    arrived: usize,
    started: bool,
    finished: bool,
}

impl Joint {
    fn update(&self, change: impl FnOnce(&mut JointState)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    /// Waits until `done`; whether it is, or `stop` said to stop.
    fn wait(&self, done: impl Fn(&JointState) -> bool, mut stop: impl FnMut(&JointState) -> bool) -> bool {
        let mut state = lock(&self.state);
        loop {
            if done(&state) {
                return true;
            }
            if stop(&state) {
                return false;
            }
            state = self.changed.wait_timeout(state, SLICE).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }
}

/// Ends a batch whatever becomes of it: also when its stream drops it unrun, or it panics.
struct Ending {
    comm: Arc<Comm>,
    joint: Option<Arc<Joint>>,
    armed: AtomicBool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if *self.armed.get_mut() {
            self.comm.progress.end();
            if let Some(joint) = &self.joint {
                joint.update(|state| state.finished = true);
            }
            self.comm.progress.finish();
        }
    }
}

/// Enqueues a batch.
pub(super) fn launch(batch: Batch) -> Outcome {
    let Batch { comm, mut operations } = batch;
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
    let joint = (!others.is_empty()).then(Arc::<Joint>::default);
    let ending = Ending { comm: comm.clone(), joint: joint.clone(), armed: AtomicBool::new(false) };
    if let Some(joint) = &joint {
        for stream in &others {
            if let Err(error) = join(&comm, joint, *stream) {
                joint.update(|state| state.finished = true);
                return Err(error);
            }
        }
    }
    let name = operations.first().map_or("NCCL", |(operation, _)| operation.kind.name());
    let awaited = others.len();
    // Armed before it can run; disarmed below if it never will be enqueued.
    ending.armed.store(true, Ordering::Relaxed);
    issued.batches += 1;
    let work = Box::new(move |running: &stream::Running<'_>| {
        let ending = ending;
        let cancelled = || running.cancelled();
        let comm = &ending.comm;
        let mut operations: Vec<Operation> = operations.into_iter().map(|(operation, _)| operation).collect();
        if let Some(joint) = &ending.joint {
            joint.update(|state| state.started = true);
            let mut patience = Patience::new();
            let stop = |state: &JointState| {
                patience.check(|| {
                    let (rank, others) = (comm.rank, awaited - state.arrived);
                    format!("a group of rank {rank} waits until {others} of its other streams come to it, and")
                });
                comm.stopped() || cancelled()
            };
            joint.wait(|state| state.arrived == awaited, stop);
        }
        let mut patience = Patience::new();
        let stop = || {
            patience.check(|| {
                format!("{name} of rank {} waits for an earlier operation on another stream, and", comm.rank)
            });
            comm.abort.is_set() || cancelled()
        };
        if comm.progress.wait(turn, stop) {
            comm.progress.begin();
            if !comm.stopped()
                && let Err(failure) = run(comm, &operations, &cancelled)
            {
                comm.fail(&failure);
            }
            comm.progress.end();
        }
        // The memory is free for others before anybody can see that the batch is done.
        operations.clear();
        drop(ending);
    });
    // If this fails, the closure is dropped, and with it `ending`, which finishes the batch.
    enqueue(&comm, main, name, work).map_err(|error| cuda(&format!("cannot enqueue {name}"), error))
}

type Work = Box<dyn FnOnce(&stream::Running<'_>) + Send>;

/// Enqueues work. The null stream is that of the communicator's device, whatever device the launching thread has.
fn enqueue(comm: &Comm, stream: StreamHandle, name: &'static str, work: Work) -> Result<(), crate::sys::cudaError> {
    let current = device::current_device();
    device::set_current(comm.device)?;
    let enqueued = stream::enqueue(stream.0, name, work);
    device::set_current(current)?;
    enqueued
}

/// A CUDA error as NCCL reports it: which one it was is in the text only.
pub(super) fn cuda(what: &str, error: crate::sys::cudaError) -> Failure {
    let text = meaning(error).to_string_lossy();
    Failure::new(ncclResult_t::ncclUnhandledCudaError, format!("{what}: Cuda failure {} '{text}'", error.0))
}

fn join(comm: &Arc<Comm>, joint: &Arc<Joint>, other: StreamHandle) -> Outcome {
    let (rank, joint) = (comm.clone(), joint.clone());
    let work = Box::new(move |running: &stream::Running<'_>| {
        joint.update(|state| state.arrived += 1);
        let lost = |state: &JointState| !state.started && (rank.abort.is_set() || running.cancelled());
        joint.wait(|state| state.finished, lost);
    });
    enqueue(comm, other, "NCCL group", work).map_err(|error| cuda("cannot join a stream to the group", error))
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
    for operation in operations {
        let Some(fault) = fault::at(comm.rank, operation.number) else {
            if !operation.kind.message() {
                collective::run(comm, operation, cancelled)?;
            }
            continue;
        };
        super::inject::suffer(comm, segment, operation, fault, cancelled)?;
        if comm.stopped() {
            return Ok(());
        }
        if !operation.kind.message() {
            collective::run(comm, operation, cancelled)?;
        }
    }
    let messages: Vec<&Operation> = operations.iter().filter(|operation| operation.kind.message()).collect();
    if comm.stopped() {
        return Ok(());
    }
    p2p::run(comm, &messages, cancelled)
}

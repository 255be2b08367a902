//! Batches: the operations of one communicator that one group launches, and their runs.
//!
//! A run comes after those that were launched before on the same communicator, on whatever streams.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::cuda::core::plan::Owner;
use crate::cuda::core::work::{Run, Running, Work};
use crate::cuda::core::{device, stream};
use crate::fault::Fault;
use crate::meet::watch::Wait;
use crate::memory::usage::reach;
use crate::nccl::basics::error::{Failure, Outcome, cuda};
use crate::nccl::basics::graphs::{Graphs, Usage};
use crate::nccl::basics::kind::Kind;
use crate::nccl::requests::operation::{Batch, Operation, StreamHandle};
use crate::nccl::requests::order::{Order, register_for_graph};
use crate::nccl::run::collective::Collective;
use crate::nccl::run::inject::stop_for_ever;
use crate::nccl::run::{collective, inject, order, p2p};
use crate::nccl::state::comm::Comm;
use crate::nccl::state::registry;
use crate::nccl::state::shared::Shared;
use crate::patience::Patience;
use crate::races::{Actor, Chain, Point, Touching};
use crate::report;
use crate::settings::{DeadPeer, settings};
use crate::sys::{cudaError, ncclResult_t};

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
        let mut issued = comm.issued.lock();
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
                collective::show_group(comm, comm.segment()?, &self.operations);
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
    collective::show_group(comm, segment, operations);
    for operation in operations {
        let Some(fault) = comm.wishes.fault(comm.rank, operation.number) else {
            if !operation.kind.by_messages() {
                collective::run(comm, operation, cancelled)?;
            }
            continue;
        };
        crate::nccl::run::inject::suffer(comm, segment, operation, fault, cancelled)?;
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

// Batches: the operations of one communicator that one group launches, on the streams they were issued to.
//
// A batch runs on the stream of its first operation. Operations that were issued to other streams join theirs to it: the
// batch waits for what was enqueued there before, and none goes on before the batch is done. As NCCL does it with events:
// each wait is for something that was enqueued earlier, so waits form no circle, whatever other threads enqueue meanwhile.

/// How long after a revoke the memory of a rank is gone.
const FREED_AFTER: Duration = Duration::from_millis(500);

/// Enqueues a batch, or writes it down, where its streams are being captured.
pub(crate) fn launch(batch: Batch) -> Outcome {
    let Batch { comm, epoch, capture, main, others, operations } = batch;
    let Some(name) = operations.first().map(|operation| operation.kind.name()) else { return Ok(()) };
    check_self_messages(&comm, &operations)?;
    let failed = |error| cuda(&format!("cannot enqueue {name}"), error);
    if capture.is_some() {
        let work = Arc::new(Captured::new(&comm, name, &operations)?);
        let streams: Vec<_> = std::iter::once(main).chain(others).map(|stream| stream.0).collect();
        let captured = on_its_device(&comm, || stream::record(&streams, owner(&comm, name), || work));
        // The capture may have come to its end since.
        return match captured.map_err(failed)? {
            true => Ok(()),
            false => Err(failed(cudaError::cudaErrorStreamCaptureInvalidated)),
        };
    }
    let bytes = operations.iter().map(|operation| operation.local_memory()).max().unwrap_or_default();
    let held_up = device::make_local_memory(device::device(comm.device).map_err(failed)?, bytes);
    // The threads of a revoked rank free its memory half a second later.
    if held_up > FREED_AFTER && comm.is_revoked() {
        report::violation(format!(
            "{name} of rank {} launches a kernel after a revoke has freed what it uses: the driver held it up meanwhile",
            comm.rank
        ));
    }
    let others: Vec<_> = others.into_iter().map(|stream| stream.0).collect();
    let mut launched = comm.resources.progress.launched.lock();
    let run = Box::new(BatchRun::new(&comm, name, epoch, operations, &mut launched));
    // If this fails, the run is dropped, which finishes the batch.
    on_its_device(&comm, || stream::enqueue(main.0, &others, name, run)).map_err(failed)
}

/// Who captured operations of `comm` belong to: what shares its resources.
pub(crate) fn owner(comm: &Comm, name: &str) -> Owner {
    if comm.config.graphs.usage == Usage::None {
        report::violation(format!(
            "{name} of rank {} is captured, and graphUsageMode is 0, which says that nothing of the communicator is",
            comm.rank
        ));
    }
    Owner { at: Arc::as_ptr(&comm.resources.progress).addr(), orders: comm.config.graphs.ordered }
}

/// Calls CUDA for a communicator: the null stream is that of its device, whatever device the launching thread has.
pub(crate) fn on_its_device<R>(comm: &Comm, call: impl FnOnce() -> Result<R, cudaError>) -> Result<R, cudaError> {
    let current = device::current_device();
    device::set_current(comm.device)?;
    let done = call();
    device::set_current(current)?;
    done
}

/// A rank that sends to itself must receive in the same group, and the other way round.
fn check_self_messages(comm: &Comm, operations: &[Operation]) -> Outcome {
    let count = |kind: Kind| {
        operations.iter().filter(|operation| operation.kind == kind && operation.peer == comm.rank).count()
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

// Batches in captures: written down once, and run at every launch of the graph.
//
// NCCL keeps what it has made for a batch until the last graph dies that has it, and the communicator with it: an end of the
// communicator waits for that. A launch after the end uses memory that is free, and is a violation here.

/// A communicator of which a graph has something, as long as it does.
#[derive(Debug)]
pub(crate) struct Kept(Arc<Comm>);

/// What one group has captured of one communicator.
#[derive(Debug)]
pub(super) struct Captured {
    kept: Kept,
    name: &'static str,
    orders: Vec<Order>,
    /// What NCCL has registered for it.
    registered: Vec<u64>,
    /// The windows whose addresses its kernels have.
    windows: Vec<usize>,
}

impl Captured {
    /// From operations that were to be launched.
    pub(super) fn new(comm: &Arc<Comm>, name: &'static str, operations: &[Operation]) -> Outcome<Self> {
        let kept = Kept::new(comm)?;
        let orders: Vec<_> = operations.iter().map(|operation| operation.order.captured()).collect();
        let windows = orders.iter().flat_map(|order| order.symmetric_windows(comm)).collect();
        let mut captured = Self { kept, name, orders, registered: Vec::new(), windows };
        for order in &captured.orders {
            for (range, piece) in register_for_graph(comm, order) {
                let record = comm.graph_cache.add(&range, &piece);
                captured.registered.push(record.map_err(|what| {
                    Failure::usage(format!("{name} is captured on rank {}: {what}", comm.rank)).reported()
                })?);
            }
        }
        Ok(captured)
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        self.kept.comm().graph_cache.end(&self.registered);
    }
}

impl Kept {
    /// A graph has one more thing of `comm`.
    pub(crate) fn new(comm: &Arc<Comm>) -> Outcome<Self> {
        comm.segment()?.own(comm.rank).graphs.fetch_add(1, Ordering::SeqCst);
        Ok(Self(comm.clone()))
    }

    pub(crate) fn comm(&self) -> &Arc<Comm> {
        &self.0
    }

    /// A launch has `name` of it: the epoch in which that begins. Fails where NCCL would work in memory that is free.
    pub(crate) fn begin(&self, name: &str) -> Result<u32, cudaError> {
        if let Some(end) = self.gone() {
            let rank = self.0.rank;
            report::violation(format!("the graph has {name} of a communicator of which rank {rank} {end}"));
            return Err(cudaError::cudaErrorInvalidValue);
        }
        Ok(self.0.epoch())
    }

    /// Why NCCL would work in memory that is free.
    fn gone(&self) -> Option<&'static str> {
        if registry::find(registry::handle(&self.0)).is_none() {
            Some("was destroyed or aborted")
        } else if self.0.is_closed() {
            Some("was finalized or revoked")
        } else if self.0.resources.memory.is_suspended() {
            Some("is suspended")
        } else {
            None
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Ok(segment) = self.0.segment() {
            segment.own(self.0.rank).graphs.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Work for Captured {
    type Run = BatchRun;

    fn name(&self) -> &'static str {
        self.name
    }

    /// NCCL may take other kernels, or more of them, for whatever changes: an update that goes well with one version need not with another.
    fn fixed(&self) -> String {
        format!("{} {:?}", self.kept.comm().handle, self.orders)
    }

    fn local_memory(&self) -> usize {
        self.orders.iter().map(Order::local_memory).max().unwrap_or_default()
    }

    fn start(&self) -> Result<BatchRun, cudaError> {
        let (epoch, comm) = (self.kept.begin(self.name)?, self.kept.comm());
        if self.windows.iter().any(|window| !comm.windows.has(*window)) {
            let (name, rank) = (self.name, comm.rank);
            report::violation(format!("the graph has {name} of rank {rank} between windows that were deregistered"));
            return Err(cudaError::cudaErrorInvalidValue);
        }
        let started = self.orders.iter().map(|order| Operation::start(comm, order)).collect::<Outcome<Vec<_>>>();
        // What is wrong is reported.
        let operations = started.map_err(|_| cudaError::cudaErrorInvalidValue)?;
        Ok(BatchRun::new(comm, self.name, epoch, operations, &mut comm.resources.progress.launched.lock()))
    }
}

// Collectives of a communicator of one rank.
//
// NCCL makes a copy of them, or starts a small kernel, at once on the stream that they are given: also inside a group, whatever becomes
// of that. They keep no order with each other but that of their streams, no end of the communicator waits for them, and none stops them.

/// A collective of one rank, as it was asked for.
#[derive(Debug, Clone)]
struct Alone {
    comm: Arc<Comm>,
    order: Order,
}

impl Alone {
    fn run(&self, mut operation: Operation) -> AloneRun {
        let mut issued = self.comm.issued.lock();
        issued.operations += 1;
        operation.number = issued.operations;
        drop(issued);
        AloneRun { comm: self.comm.clone(), operation }
    }
}

impl Work for Alone {
    type Run = AloneRun;

    fn name(&self) -> &'static str {
        self.order.kind.name()
    }

    fn fixed(&self) -> String {
        format!("{} {:?}", self.comm.handle, self.order)
    }

    fn start(&self) -> Result<AloneRun, cudaError> {
        // What is wrong is reported.
        let operation = Operation::start(&self.comm, &self.order).map_err(|_| cudaError::cudaErrorInvalidValue)?;
        Ok(self.run(operation))
    }
}

/// One run of it.
#[derive(Debug)]
struct AloneRun {
    comm: Arc<Comm>,
    operation: Operation,
}

impl Run for AloneRun {
    fn tell<'a>(&'a self, tell: &mut dyn FnMut(Touching<'a>)) {
        self.operation.tell(Actor { rank: Some(self.comm.rank), ..Actor::alone(self.operation.kind.name()) }, tell);
    }

    fn run(self: Box<Self>, running: &Running) {
        let Self { comm, operation } = *self;
        let done = match (comm.wishes.fault(comm.rank, operation.number), comm.segment()) {
            (None, _) | (_, Err(_)) => work(&operation),
            (Some(fault), Ok(segment)) => inject::suffer(&comm, segment, &operation, fault, &|| running.cancelled())
                .and_then(|()| if matches!(fault, Fault::Late(_)) { work(&operation) } else { Ok(()) }),
        };
        if let Err(failure) = done {
            comm.fail(&failure);
        }
    }
}

fn work(operation: &Operation) -> Outcome {
    let [send, recv] = operation.spans(1, 0);
    let at =
        |place, bytes| reach(place, bytes).map_err(|error| Failure::system(format!("the memory of the rank: {error}")));
    let (send, recv) = (at(&operation.send, send)?, at(&operation.recv, recv)?);
    // SAFETY: the buffers were checked to hold what the operation says, and are kept from reuse until it is done. No other rank has
    // anything to do with it.
    unsafe { collective::do_alone(operation, send, recv, operation.scalar.bits(operation.size)?) };
    Ok(())
}

/// Puts `operation` of a communicator of one rank on its stream, or into the capture of that.
pub(crate) fn launch_alone(comm: &Arc<Comm>, operation: Operation, stream: StreamHandle) -> Outcome {
    let alone = Alone { comm: comm.clone(), order: operation.order };
    let name = alone.name();
    let captured = stream::find(stream.0).and_then(|found| found.captures(&alone));
    let enqueue = || stream::enqueue(stream.0, &[], name, Box::new(alone.run(operation)));
    let done = captured.and_then(|captured| if captured { Ok(()) } else { enqueue() });
    done.map_err(|error| cuda(&format!("cannot enqueue {name}"), error))
}

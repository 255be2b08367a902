//! Groups: what a thread has called between `ncclGroupStart` and `ncclGroupEnd`, and its launch at the end.
//!
//! Every call that launches something runs as a group of its own, so there is one path for both. The state belongs to the
//! thread, as in NCCL: a group that is never ended swallows all that the thread calls later.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use crate::bugs::Nccl;
use crate::cuda::core::{device, stream};
use crate::nccl::basics::error::{Failure, Outcome, cuda};
use crate::nccl::basics::kind::Kind;
use crate::nccl::calls::connect;
use crate::nccl::requests::operation::{Batch, Operation, StreamHandle};
use crate::nccl::requests::order::Order;
use crate::nccl::requests::request::Request;
use crate::nccl::run::batch;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::registry;
use crate::nccl::state::resources::{Inside, Manner};
use crate::report;
use crate::settings::settings;
use crate::sys::{NCCL_VERSION_CODE, cudaStream_t, ncclComm_t, ncclResult_t, ncclSimInfo_t};

/// A call that is no operation on a stream: init, split, finalize, window registration.
///
/// NCCL runs each on a thread of its own, but for registrations of windows and what it treats alike: it comes to those
/// when all others are done, to one communicator after the other, and to those of one rank in their order.
pub(crate) struct Job {
    /// The communicator whose state tells how the job goes.
    pub(crate) comm: Arc<Comm>,
    pub(crate) name: &'static str,
    pub(crate) run: Box<dyn FnOnce() -> Outcome + Send>,
}

impl Job {
    /// Whether NCCL would run the other one at the same time, over the same connections.
    fn clashes(&self, other: &Self) -> bool {
        self.comm.size > 1 && Arc::ptr_eq(&self.comm, &other.comm)
    }
}

/// The jobs of a group.
#[derive(Default)]
pub(super) struct Jobs {
    single: Vec<Job>,
    windows: Vec<Job>,
}

impl Jobs {
    fn is_empty(&self) -> bool {
        self.single.is_empty() && self.windows.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = &Job> {
        self.single.iter().chain(&self.windows)
    }
}

#[derive(Default)]
struct State {
    depth: usize,
    /// How much of the depth an early return of ncclCommDestroy left behind.
    leaked: usize,
    /// The first failure of a call inside: the end launches nothing then.
    failure: Option<Failure>,
    blocking: Option<bool>,
    batches: Vec<Batch>,
    jobs: Jobs,
    /// One-sided operations, which are enqueued when the jobs are done.
    one_sided: Vec<Job>,
    /// Of which capture the streams of each communicator are.
    captures: Vec<(Arc<Comm>, Option<u64>)>,
    /// The communicators of both: this thread is inside them until the group ends.
    inside: Vec<Inside>,
}

impl Drop for State {
    fn drop(&mut self) {
        if self.depth > 0 {
            report::violation(format!(
                "a thread ended inside a group: {} ncclGroupStart without ncclGroupEnd, {} operations were never launched",
                self.depth,
                self.batches.iter().map(|batch| batch.operations.len()).sum::<usize>() + self.jobs.iter().count()
            ));
        }
    }
}

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State::default());
}

fn with<R>(f: impl FnOnce(&mut State) -> R) -> Outcome<R> {
    STATE
        .try_with(|state| match state.try_borrow_mut() {
            Ok(mut state) => Ok(f(&mut state)),
            Err(_) => Err(Failure::internal("a group is used while it is being used")),
        })
        .unwrap_or_else(|_| Err(Failure::internal("the thread is ending")))
}

/// `ncclGroupStart`.
pub(crate) fn start() -> Outcome {
    with(|state| state.depth += 1)
}

/// What a group is made of that is about to be launched: operations, jobs, one-sided operations, and whether its communicators block.
pub(super) type Parts = (Vec<Batch>, Jobs, Vec<Job>, Option<bool>);

/// `ncclGroupEnd`.
pub(crate) fn end() -> Outcome<ncclResult_t> {
    end_by(submit)
}

/// Ends a group, and has `launch` do what is left to do.
pub(super) fn end_by(launch: impl FnOnce(Parts) -> Outcome<ncclResult_t>) -> Outcome<ncclResult_t> {
    let state = with(|state| {
        if state.depth == 0 {
            return Err(Failure::usage("not inside a group"));
        }
        state.depth -= 1;
        Ok((state.depth == 0).then(|| std::mem::take(state)))
    })??;
    match state {
        None => Ok(ncclResult_t::ncclSuccess),
        Some(mut state) => match state.failure.take() {
            Some(failure) => {
                for job in state.jobs.iter().chain(&state.one_sided) {
                    job.comm.give_up(&failure);
                    job.comm.refuse(&failure);
                }
                for batch in &state.batches {
                    connect::never_connect(batch);
                    batch.comm.refuse(&failure);
                }
                Err(Failure::new(failure.code, format!("a call inside the group failed: {}", failure.text)))
            }
            None => {
                let (batches, jobs) = (std::mem::take(&mut state.batches), std::mem::take(&mut state.jobs));
                launch((batches, jobs, std::mem::take(&mut state.one_sided), state.blocking))
            }
        },
    }
}

/// Leaves the thread one group deeper, as NCCL's `ncclCommDestroy` does when it returns early.
pub(crate) fn leak() -> Outcome {
    with(|state| {
        state.depth += 1;
        state.leaked += 1;
    })
}

/// Whether the thread is in such a group.
pub(crate) fn leaked() -> bool {
    with(|state| state.leaked > 0).unwrap_or(false)
}

/// How deep the calling thread is inside groups.
pub(crate) fn depth() -> usize {
    with(|state| state.depth).unwrap_or(0)
}

/// Whether the calling thread has operations waiting in a group.
pub(crate) fn has_operations() -> bool {
    with(|state| !state.batches.is_empty()).unwrap_or(false)
}

/// Runs one call as a group of its own, or as part of the one that the thread is in.
pub(crate) fn call(body: impl FnOnce() -> Outcome) -> Outcome<ncclResult_t> {
    start()?;
    let failed = body().err();
    if let Some(failure) = &failed {
        with(|state| {
            state.failure.get_or_insert_with(|| failure.clone());
        })?;
    }
    let ended = end();
    match failed {
        Some(failure) => Err(failure),
        None => ended,
    }
}

impl State {
    /// Whoever comes with something for a stream, or a window, decides how the group is launched: NCCL looks at the last of them.
    fn join(&mut self, comm: &Comm) {
        self.blocking = Some(comm.config.blocking);
    }

    /// All that a communicator is given streams for is of one capture, or of none.
    fn agree(&mut self, comm: &Arc<Comm>, capture: Option<u64>) -> Outcome {
        match self.captures.iter().find(|(known, _)| Arc::ptr_eq(known, comm)) {
            Some((_, known)) if *known != capture => Err(Failure::usage(
                "the streams that a communicator is given in a group must all be captured into the same graph, or none of them",
            )),
            Some(_) => Ok(()),
            None => {
                self.captures.push((comm.clone(), capture));
                Ok(())
            }
        }
    }

    /// Other jobs must be of communicators that block as the group does so far.
    fn check(&mut self, comm: &Comm) -> Outcome {
        let blocking = *self.blocking.get_or_insert(comm.config.blocking);
        if blocking != comm.config.blocking {
            return Err(Failure::argument("blocking and non-blocking communicators are in the same group"));
        }
        Ok(())
    }

    /// This thread is inside until the group ends.
    fn enter(&mut self, comm: &Comm, manner: Manner) {
        self.inside.push(comm.resources.visits.enter(comm.handle, comm.rank, manner));
    }

    fn add_job(&mut self, job: Job, manner: Manner) {
        self.enter(&job.comm, manner);
        if let Some(other) = self.jobs.single.iter().find(|other| other.clashes(&job)) {
            report::violation(format!(
                "{} and {} of rank {} are in one group: NCCL runs both at the same time, over the same connections",
                other.name, job.name, job.comm.rank
            ));
        }
        self.jobs.single.push(job);
    }
}

/// Adds an operation, issued in that epoch of its communicator on a stream of that capture, to the group of this thread.
pub(crate) fn add_operation(
    comm: &Arc<Comm>,
    epoch: u32,
    operation: Operation,
    (stream, capture): (StreamHandle, Option<u64>),
) -> Outcome {
    with(|state| {
        state.join(comm);
        state.agree(comm, capture)?;
        match state.batches.iter_mut().find(|batch| Arc::ptr_eq(&batch.comm, comm)) {
            Some(batch) => {
                if stream != batch.main && !batch.others.contains(&stream) {
                    batch.others.push(stream);
                }
                batch.operations.push(operation);
            }
            None => {
                state.inside.push(comm.resources.visits.enter(comm.handle, comm.rank, Manner::Alone));
                let (comm, operations) = (comm.clone(), vec![operation]);
                state.batches.push(Batch { comm, epoch, capture, main: stream, others: Vec::new(), operations });
            }
        }
        Ok(())
    })?
}

/// This thread is inside `comm`, too, until its group ends.
pub(super) fn stay_inside(comm: &Comm) -> Outcome {
    with(|state| state.enter(comm, Manner::Alone))
}

/// Adds a job to the group of this thread.
pub(crate) fn add_job(job: Job) -> Outcome {
    add_job_in(job, Manner::Alone)
}

/// Adds a revoke, which may meet other threads inside the communicator.
pub(crate) fn add_revoke(job: Job) -> Outcome {
    add_job_in(job, Manner::Guest)
}

fn add_job_in(job: Job, manner: Manner) -> Outcome {
    with(|state| {
        state.check(&job.comm)?;
        state.add_job(job, manner);
        Ok(())
    })?
}

/// Adds the end of a communicator. The group blocks then, whatever its communicators say.
pub(crate) fn add_end(job: Job) -> Outcome {
    with(|state| {
        state.blocking = Some(true);
        state.add_job(job, Manner::Alone);
    })
}

/// Adds a window to be registered.
pub(crate) fn add_window(job: Job) -> Outcome {
    with(|state| {
        state.join(&job.comm);
        state.enter(&job.comm, Manner::Alone);
        state.jobs.windows.push(job);
    })
}

/// Adds a one-sided operation on a stream of that capture.
pub(crate) fn add_one_sided(job: Job, capture: Option<u64>) -> Outcome {
    with(|state| {
        state.join(&job.comm);
        state.agree(&job.comm, capture)?;
        state.inside.push(job.comm.resources.visits.enter(job.comm.handle, job.comm.rank, Manner::Alone));
        state.one_sided.push(job);
        Ok(())
    })?
}

/// Launches a group.
pub(super) fn submit((batches, jobs, one_sided, blocking): Parts) -> Outcome<ncclResult_t> {
    if batches.is_empty() && jobs.is_empty() && one_sided.is_empty() {
        return Ok(ncclResult_t::ncclSuccess);
    }
    if blocking != Some(false) {
        let last = batches.last().map(|batch| batch.comm.device);
        let performed = perform(batches, jobs, one_sided);
        if performed.is_err()
            && let Some(device) = last
        {
            // NCCL restores the current device after a success only.
            let _ = device::set_current(device);
        }
        return performed.map(|()| ncclResult_t::ncclSuccess);
    }
    let mut comms: Vec<Arc<Comm>> = Vec::new();
    for comm in batches.iter().map(|batch| &batch.comm).chain(jobs.iter().chain(&one_sided).map(|job| &job.comm)) {
        if !comms.iter().any(|known| Arc::ptr_eq(known, comm)) {
            comms.push(comm.clone());
        }
    }
    for comm in &comms {
        comm.begin();
    }
    let settle = move || {
        let outcome = perform(batches, jobs, one_sided);
        for comm in comms {
            comm.settle(&outcome);
        }
    };
    let spawned = std::thread::Builder::new().name("gpucomm-nccl".to_owned()).spawn(settle);
    spawned.map_err(|e| Failure::system(format!("cannot start a thread: {e}")))?;
    Ok(ncclResult_t::ncclInProgress)
}

/// NCCL launches the communicators of a group in the order of their hashes, which all ranks know.
fn order_of_launch(batch: &Batch) -> u64 {
    batch.comm.segment.get().map_or(0, |segment| segment.nonce())
}

/// The jobs of one communicator of this process, which its ranks run side by side: those of each rank.
type Clique = Vec<Vec<Job>>;

/// Registrations by the communicator, in the order of the hashes of these, which all ranks know.
fn cliques(windows: Vec<Job>) -> Vec<Clique> {
    let nonce = |job: &Job| job.comm.segment.get().map(|segment| segment.nonce());
    let mut cliques: Vec<Clique> = Vec::new();
    for job in windows {
        let Some(clique) = cliques.iter_mut().find(|clique| nonce(&clique[0][0]) == nonce(&job)) else {
            cliques.push(vec![vec![job]]);
            continue;
        };
        match clique.iter_mut().find(|jobs| Arc::ptr_eq(&jobs[0].comm, &job.comm)) {
            Some(jobs) => jobs.push(job),
            None => clique.push(vec![job]),
        }
    }
    cliques.sort_by_key(|clique| nonce(&clique[0][0]));
    cliques
}

/// Runs jobs side by side, since those of one group may wait for each other, and those of each list one after the other.
fn run_side_by_side(mut lists: Vec<Vec<Job>>) -> Outcome {
    let run_list = |jobs: Vec<Job>| jobs.into_iter().try_for_each(|job| (job.run)());
    if lists.len() <= 1 {
        return run_list(lists.pop().unwrap_or_default());
    }
    let mut threads = Vec::with_capacity(lists.len());
    // NCCL stops all jobs when one fails, and returns the failure that came first. The order in the group does not matter.
    let comms: Arc<[Arc<Comm>]> = lists.iter().flatten().map(|job| job.comm.clone()).collect();
    let failed = Arc::new(OnceLock::new());
    for jobs in lists {
        let (comms, failed, name) = (comms.clone(), failed.clone(), jobs[0].name);
        let run = move || {
            run_list(jobs).inspect_err(|failure| {
                let _ = failed.set(failure.clone());
                comms.iter().for_each(|comm| comm.resources.abort.set());
            })
        };
        let thread = std::thread::Builder::new().name("gpucomm-nccl".to_owned()).spawn(run);
        threads.push((name, thread.map_err(|e| Failure::system(format!("cannot start a thread: {e}")))?));
    }
    let mut first = Ok(());
    for (name, thread) in threads {
        let outcome = thread.join().unwrap_or_else(|_| Err(Failure::internal(format!("{name} panicked"))));
        first = first.and(outcome);
    }
    failed.get().cloned().map_or(Ok(()), Err)?;
    first
}

/// Runs the jobs, then enqueues what is one-sided, and the batches.
fn perform(mut batches: Vec<Batch>, jobs: Jobs, one_sided: Vec<Job>) -> Outcome {
    let mut lists: Vec<Vec<Job>> = Vec::new();
    for job in jobs.single {
        match lists.iter_mut().find(|list| list[0].clashes(&job)) {
            // That was reported.
            Some(list) => list.push(job),
            None => lists.push(vec![job]),
        }
    }
    run_side_by_side(lists)?;
    cliques(jobs.windows).into_iter().try_for_each(run_side_by_side)?;
    connect::connect(&batches)?;
    check_captures(&batches)?;
    one_sided.into_iter().try_for_each(|job| (job.run)())?;
    batches.sort_by_key(order_of_launch);
    for batch in batches {
        let comm = Arc::clone(&batch.comm);
        batch::launch(batch)?;
        comm.graph_cache.step();
    }
    Ok(())
}

/// Refuses to capture some ranks of a communicator and not others, as NCCL does when it has begun already.
fn check_captures(batches: &[Batch]) -> Outcome {
    let Some((captured, live)) = batches.iter().find(|batch| batch.capture.is_some()).and_then(|captured| {
        let nonce = |batch: &Batch| batch.comm.segment().ok().map(|segment| segment.nonce());
        let live = batches.iter().find(|batch| batch.capture.is_none() && nonce(batch) == nonce(captured))?;
        Some((captured, live))
    }) else {
        return Ok(());
    };
    Err(Failure::usage(format!(
        "of one communicator, rank {} is captured in a group in which rank {} is not: NCCL leaves both unusable",
        captured.comm.rank, live.comm.rank
    ))
    .reported())
}

// `ncclGroupSimulateEnd`: a group of which NCCL says how long it may take, and which it forgets.
//
// As in NCCL, it is no rehearsal: what a collective connects for the first time is connected, for which all ranks have to come; jobs are
// done; one rank alone copies in the call, before there is anything to simulate; and what does not block is launched. Messages stay in NCCL's
// queues, whose memory is reused, and are not connected any more, so that the next group does who knows what. So do broadcasts from several
// roots, since NCCL has queues for them.

const MAGIC: u32 = 0x7468_5283;

/// The first version that has a queue for the broadcasts of each root, beside those for messages. It takes them out before it simulates
/// where there is one root alone.
const QUEUES_BROADCASTS: Nccl = 2_29_02;

/// Microseconds that a step from one rank to the next takes, and one byte of it: 200 GB/s.
const STEP: f32 = 1.5;
const BYTE: f32 = 1.0 / 200e3;

/// What `NCCL_SIM_INFO_INITIALIZER` holds.
pub(crate) fn initial_simulation() -> ncclSimInfo_t {
    ncclSimInfo_t { size: size_of::<ncclSimInfo_t>(), magic: MAGIC, version: NCCL_VERSION_CODE, estimatedTime: -1.0 }
}

/// `ncclGroupSimulateEnd`: the estimate, where there is one.
pub(crate) fn end_simulated(info: &ncclSimInfo_t) -> (Outcome<ncclResult_t>, Option<f32>) {
    let mut estimate = None;
    let ended = end_by(|parts| {
        if info.magic != MAGIC {
            return Err(Failure::argument("ncclSimInfo_t was not made by NCCL_SIM_INFO_INITIALIZER"));
        }
        simulate(parts, &mut estimate)
    });
    (ended, estimate)
}

fn simulate((batches, jobs, one_sided, blocking): Parts, estimate: &mut Option<f32>) -> Outcome<ncclResult_t> {
    if blocking == Some(false) {
        return Err(Failure::unnoticed(
            "a simulated group of communicators that do not block is launched all the same",
        ));
    }
    let is_message =
        |one: &Operation| one.kind.message() || matches!(one.kind, Kind::AlltoAll | Kind::Gather | Kind::Scatter);
    let mut operations = batches.iter().filter(|batch| batch.comm.size > 1).flat_map(|batch| &batch.operations);
    if let Some(one) = operations.find(|one| is_message(one)) {
        let name = one.kind.name();
        return Err(Failure::unnoticed(format!("{name} in a simulated group: NCCL keeps messages for the next group")));
    }
    if settings().nccl >= QUEUES_BROADCASTS && batches.iter().any(has_several_roots) {
        return Err(Failure::unnoticed(
            "broadcasts from several roots in a simulated group: NCCL keeps them for the next group, which does those instead of its own",
        ));
    }
    if !one_sided.is_empty() {
        return Err(Failure::unnoticed("a one-sided operation in a simulated group: NCCL keeps it for the next group"));
    }
    let (alone, others): (Vec<_>, Vec<_>) = batches.into_iter().partition(|batch| batch.comm.size == 1);
    submit((alone, jobs, one_sided, blocking))?;
    connect::connect(&others)?;
    // Each overwrites what the one before has said.
    *estimate = others.iter().filter_map(last).next_back();
    Ok(ncclResult_t::ncclSuccess)
}

/// Whether there are broadcasts from several roots among the operations of one communicator.
fn has_several_roots(Batch { comm, operations, .. }: &Batch) -> bool {
    let is_one = |one: &&Operation| one.kind == Kind::Broadcast && one.bytes() > 0;
    let mut roots = operations.iter().filter(is_one).map(|one| one.peer);
    let first = roots.next();
    comm.size > 1 && roots.any(|root| Some(root) != first)
}

/// What NCCL says of the operations of one communicator: the time of those that it looks at last, the smallest ones.
fn last(Batch { comm, operations, .. }: &Batch) -> Option<f32> {
    // Of those that kernels for symmetric windows do nothing is said.
    let estimated = operations.iter().filter(|one| !one.is_symmetric(comm) && one.bytes() > 0);
    estimated.min_by_key(|one| one.bytes()).map(|one| time(comm, one))
}

/// In microseconds, round a ring.
fn time(comm: &Comm, operation: &Operation) -> f32 {
    let steps = comm.size as f32 - 1.0;
    let rounds = if operation.kind == Kind::AllReduce { 2.0 } else { 1.0 };
    rounds * (steps * STEP + operation.bytes() as f32 * steps / comm.size as f32 * BYTE)
}

/// Issues one operation, as a group of its own or as part of the thread's.
pub(crate) fn issue(comm: ncclComm_t, stream: cudaStream_t, request: &Request) -> Outcome<ncclResult_t> {
    call(|| {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        let epoch = comm.ensure_usable()?;
        add(&comm, epoch, stream, request).inspect_err(|failure| comm.refuse(failure))
    })
}

/// Returns the capture that `stream` is part of. Refuses a stream of another device.
pub(super) fn capture_of(comm: &Comm, stream: cudaStream_t) -> Outcome<Option<u64>> {
    // The null stream is that of the communicator's device, which NCCL makes current.
    let (device, capture) = match stream::place(stream) {
        _ if stream::is_legacy(stream) => (comm.device, None),
        place => place.map_err(|error| cuda("the stream", error))?,
    };
    if device != comm.device {
        return Err(Failure::argument(format!(
            "the stream belongs to device {device}, expected device {} of rank {}",
            comm.device, comm.rank
        )));
    }
    Ok(capture)
}

fn add(comm: &Arc<Comm>, epoch: u32, stream: cudaStream_t, request: &Request) -> Outcome {
    let capture = capture_of(comm, stream)?;
    let operation = Operation::start(comm, &Order::new(comm, request)?)?;
    if !request.kind.message() {
        if request.count == 0 {
            // NCCL drops it: it holds up nobody, and orders nothing.
            return Ok(());
        }
        if comm.size == 1 {
            return batch::launch_alone(comm, operation, StreamHandle(stream));
        }
    }
    add_operation(comm, epoch, operation, (StreamHandle(stream), capture))
}

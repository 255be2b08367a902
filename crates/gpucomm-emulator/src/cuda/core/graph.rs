//! CUDA graphs.
//!
//! A launch is one piece of work of its stream. It takes as many entries of the launch queue as its
//! nodes would, as measured on an H100. Launches of one executable graph run one after the other, also
//! on different streams. Destroying an executable graph does not end its launches. Nodes that do not
//! depend on each other run in parallel, also on one device. Graphs that allocate memory are not
//! emulated.
//!
//! If one thread launches a graph while another enqueues on one of its communicators, their order is
//! not defined. NCCL requires that only one thread at a time uses a communicator.

use super::handle::Registry;
use super::line::Ticket;
use super::plan::{Change, Plan};
use super::stream::Stream;
use crate::cuda::core::device::make_local_memory;
use crate::cuda::core::plan::Lanes;
use crate::cuda::core::queue::Task;
use crate::cuda::core::{capture, plan};
use crate::lock::Mutex;
use crate::report;
use crate::sys::{cudaError, cudaGraph_t, cudaGraphExec_t};
use std::sync::Arc;

/// The graphs.
static GRAPHS: Registry<Plan> = Registry::new(0x54);

/// An executable graph.
#[derive(Debug)]
struct Exec(Mutex<State>);

#[derive(Debug)]
struct State {
    lanes: Arc<Lanes>,
    /// Whether [`plan::report_unordered`] has checked the nodes.
    looked: bool,
    /// The last launch.
    last: Option<Ticket>,
}

/// The executable graphs.
static EXECS: Registry<Exec> = Registry::new(0x55);

/// The one flag of `cudaGraphInstantiate` that the emulator accepts. It frees the memory that a launch
/// has allocated, and graphs of the emulator allocate none.
const AUTO_FREE: u64 = 1;

/// Makes a graph of a captured plan.
pub(crate) fn add(plan: Plan) -> Result<cudaGraph_t, cudaError> {
    GRAPHS.insert(Arc::new(plan)).ok_or(cudaError::cudaErrorMemoryAllocation)
}

fn find(graph: cudaGraph_t) -> Result<Arc<Plan>, cudaError> {
    GRAPHS.get(graph).ok_or_else(|| unknown(format!("{graph:p} is no graph")))
}

fn unknown(what: String) -> cudaError {
    report::violation(format!("{what}: it was destroyed, or never made"));
    cudaError::cudaErrorInvalidValue
}

/// The number of nodes of a graph.
pub(crate) fn nodes(graph: cudaGraph_t) -> Result<usize, cudaError> {
    Ok(find(graph)?.len())
}

/// Wraps `cudaGraphDestroy`. Executable graphs made from it stay valid.
pub(crate) fn destroy(graph: cudaGraph_t) -> Result<(), cudaError> {
    GRAPHS.remove(graph).map(drop).ok_or_else(|| unknown(format!("{graph:p} is no graph")))
}

/// Wraps `cudaGraphInstantiate`.
pub(crate) fn instantiate(graph: cudaGraph_t, flags: u64) -> Result<cudaGraphExec_t, cudaError> {
    if flags & !AUTO_FREE != 0 {
        report::line(format!("cudaGraphInstantiate: flags {flags:#x} are not emulated"));
        return Err(cudaError::cudaErrorInvalidValue);
    }
    let plan = find(graph)?;
    // As was seen on H200s: the driver makes the memory here, and not at the first launch.
    plan.local_memory().for_each(|(device, bytes)| _ = make_local_memory(device, bytes));
    let state = State { lanes: Arc::new(Lanes::of(plan)), looked: false, last: None };
    EXECS.insert(Arc::new(Exec(Mutex::new(state)))).ok_or(cudaError::cudaErrorMemoryAllocation)
}

/// Wraps `cudaGraphExecDestroy`.
pub(crate) fn destroy_exec(exec: cudaGraphExec_t) -> Result<(), cudaError> {
    EXECS.remove(exec).map(drop).ok_or_else(|| unknown(format!("{exec:p} is no executable graph")))
}

fn find_exec(exec: cudaGraphExec_t) -> Result<Arc<Exec>, cudaError> {
    EXECS.get(exec).ok_or_else(|| unknown(format!("{exec:p} is no executable graph")))
}

/// Wraps `cudaGraphExecUpdate`. Returns the change that it cannot apply, if there is one. Earlier
/// launches are not affected.
pub(crate) fn update(exec: cudaGraphExec_t, graph: cudaGraph_t) -> Result<Option<Change>, cudaError> {
    let (exec, plan) = (find_exec(exec)?, find(graph)?);
    let mut state = exec.0.lock();
    let change = state.lanes.plan.differs(&plan);
    if change.is_none() {
        state.lanes = Arc::new(Lanes::of(plan));
        state.looked = false;
    }
    Ok(change)
}

/// Wraps `cudaGraphUpload`. Waits on the stream for the last launch, and does nothing else.
pub(crate) fn upload(exec: cudaGraphExec_t, stream: &Arc<Stream>) -> Result<(), cudaError> {
    let exec = find_exec(exec)?;
    stream.device.check()?;
    capture::refuse(&stream.line)?;
    let before = exec.0.lock().last.clone();
    before.map_or(Ok(()), |before| stream.follow(before))
}

/// Wraps `cudaGraphLaunch`.
pub(crate) fn launch(exec: cudaGraphExec_t, stream: &Arc<Stream>) -> Result<(), cudaError> {
    let exec = find_exec(exec)?;
    stream.device.check()?;
    capture::refuse(&stream.line)?;
    // Hold the lock until the launch is enqueued, so that all devices run two launches in the same order.
    let mut state = exec.0.lock();
    let lanes = state.lanes.clone();
    let Lanes { plan, order, .. } = &*lanes;
    let mut steps = plan.start(order)?;
    if let Some(before) = state.last.take() {
        stream.follow(before)?;
    }
    if !std::mem::replace(&mut state.looked, true) {
        plan::report_unordered(plan, order, &steps);
    }
    steps.iter_mut().for_each(|step| stream.place(&mut *step.run));
    state.last = Some(stream.push(Task::Graph(steps, lanes))?);
    Ok(())
}

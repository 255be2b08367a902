//! Graphs: what was captured, and launched as often as one likes.
//!
//! A launch is one piece of work of the stream that it is for, which takes as many places in the launch queue as its pieces would, as
//! was seen on an H100. Launches of one executable graph run one after the other, on whatever streams. Who destroys one does not end
//! what it has launched. Pieces that have no order are done side by side, on whatever devices they are. No graph allocates memory.
//!
//! Whoever launches a graph and enqueues on one of its communicators at the same time, from two threads, leaves open which comes first:
//! NCCL asks for one thread at a time there.

use super::handle::Registry;
use super::line::Ticket;
use super::plan::{Change, Plan};
use super::stream::Stream;
use crate::cuda::core::plan::Lanes;
use crate::cuda::core::queue::Task;
use crate::cuda::core::{capture, plan};
use crate::lock::Mutex;
use crate::report;
use crate::sys::{cudaError, cudaGraph_t, cudaGraphExec_t};
use std::sync::Arc;

/// Graphs by their handles.
static GRAPHS: Registry<Plan> = Registry::new(0x54);

/// An executable graph.
#[derive(Debug)]
struct Exec(Mutex<State>);

#[derive(Debug)]
struct State {
    lanes: Arc<Lanes>,
    /// Its pieces were looked at.
    looked: bool,
    /// Its last launch.
    last: Option<Ticket>,
}

/// Executable graphs by their handles.
static EXECS: Registry<Exec> = Registry::new(0x55);

/// What cudaGraphInstantiate knows and the emulator can do: freeing what a launch has allocated, which no graph of it has.
const AUTO_FREE: u64 = 1;

/// A handle for what was captured.
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

/// How many nodes a graph has.
pub(crate) fn nodes(graph: cudaGraph_t) -> Result<usize, cudaError> {
    Ok(find(graph)?.len())
}

/// Wraps `cudaGraphDestroy`. What was instantiated from it stays.
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

/// Wraps `cudaGraphExecUpdate`: what keeps it from that, if something does. What was launched before stays as it was.
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

/// Wraps `cudaGraphUpload`: comes after what was launched, and does nothing.
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
    // Held until it is enqueued, so that two launches come one after the other everywhere.
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

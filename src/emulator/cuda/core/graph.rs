//! Graphs: what was captured, and launched as often as one likes.
//!
//! A launch is one piece of work of the stream that it is for, which takes as many places in the launch queue as its pieces would, as
//! was seen on an H100. Launches of one executable graph run one after the other, on whatever streams. Who destroys one does not end
//! what it has launched. The pieces are done one at a time, where a GPU does side by side what has no order: a piece that waits for
//! another one of its own graph, with no edge between them, waits for ever. No graph allocates memory.
//!
//! Whoever launches a graph and enqueues on one of its communicators at the same time, from two threads, leaves open which comes first:
//! NCCL asks for one thread at a time there.

use super::handle::Registry;
use super::line::Ticket;
use super::plan::Plan;
use super::stream::Stream;
use super::task::Task;
use super::{capture, unordered};
use crate::emulator::lock::lock;
use crate::emulator::report;
use crate::sys::{cudaError, cudaGraph_t, cudaGraphExec_t};
use std::sync::{Arc, Mutex, Once};

/// Graphs by their handles.
static GRAPHS: Registry<Plan> = Registry::new(0x54);

/// An executable graph.
#[derive(Debug)]
struct Exec {
    plan: Arc<Plan>,
    /// In which order its nodes are done.
    order: Vec<usize>,
    /// Its pieces were looked at.
    looked: Once,
    /// Its last launch.
    last: Mutex<Option<Ticket>>,
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
    let exec = Exec { order: plan.order(), plan, looked: Once::new(), last: Mutex::default() };
    EXECS.insert(Arc::new(exec)).ok_or(cudaError::cudaErrorMemoryAllocation)
}

/// Wraps `cudaGraphExecDestroy`.
pub(crate) fn destroy_exec(exec: cudaGraphExec_t) -> Result<(), cudaError> {
    EXECS.remove(exec).map(drop).ok_or_else(|| unknown(format!("{exec:p} is no executable graph")))
}

/// Wraps `cudaGraphLaunch`.
pub(crate) fn launch(exec: cudaGraphExec_t, stream: &Arc<Stream>) -> Result<(), cudaError> {
    let exec = EXECS.get(exec).ok_or_else(|| unknown(format!("{exec:p} is no executable graph")))?;
    stream.device.check()?;
    capture::refuse(&stream.line)?;
    // Held until it is enqueued, so that two launches come one after the other everywhere.
    let mut last = lock(&exec.last);
    let mut steps = exec.plan.start(&exec.order)?;
    if let Some(before) = last.take() {
        stream.follow(before)?;
    }
    exec.looked.call_once(|| unordered::report(&exec.plan, &exec.order, &steps));
    steps.iter_mut().for_each(|step| stream.place(&mut *step.run));
    *last = Some(stream.push(Task::Graph(steps, exec.plan.clone()))?);
    Ok(())
}

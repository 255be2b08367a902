//! Stream capture, as far as others can spoil it.
//!
//! Nothing is recorded: a graph is always empty, and work for a stream that is being captured is refused. What is emulated is
//! which calls a capture forbids to whom: those that CUDA calls potentially unsafe, because they concern work of the whole
//! device, which a capture only pretends to enqueue.

use super::handle::Registry;
use crate::emulator::lock::lock;
use crate::emulator::report;
use crate::sys::{cudaError, cudaGraph_t, cudaStreamCaptureMode, cudaStreamCaptureStatus};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

const GLOBAL: cudaStreamCaptureMode = cudaStreamCaptureMode::cudaStreamCaptureModeGlobal;
const RELAXED: cudaStreamCaptureMode = cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;

/// An empty graph.
#[derive(Debug)]
struct Graph;

static GRAPHS: Registry<Graph> = Registry::new(0x54);

/// Which stream is meant. It stays alive as long as it is being captured.
type Captured = Arc<dyn std::any::Any + Send + Sync>;

/// A capture that was begun and not ended.
#[derive(Debug)]
struct Capture {
    stream: Captured,
    mode: cudaStreamCaptureMode,
    thread: ThreadId,
    spoilt: bool,
}

static CAPTURES: Mutex<Vec<Capture>> = Mutex::new(Vec::new());
/// How many there are: most programs have none, and pay one load.
static ONGOING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MODE: Cell<cudaStreamCaptureMode> = const { Cell::new(GLOBAL) };
}

/// Wraps `cudaThreadExchangeStreamCaptureMode`: the mode of this thread before.
pub(crate) fn exchange(mode: cudaStreamCaptureMode) -> Result<cudaStreamCaptureMode, cudaError> {
    valid(mode)?;
    Ok(MODE.replace(mode))
}

fn valid(mode: cudaStreamCaptureMode) -> Result<(), cudaError> {
    if mode.0 <= RELAXED.0 { Ok(()) } else { Err(cudaError::cudaErrorInvalidValue) }
}

fn change<R>(work: impl FnOnce(&mut Vec<Capture>) -> R) -> R {
    let mut all = lock(&CAPTURES);
    let result = work(&mut all);
    ONGOING.store(all.len(), Ordering::Release);
    result
}

/// The place of a value, by which streams are told apart.
fn address<T: ?Sized>(value: &Arc<T>) -> usize {
    Arc::as_ptr(value).addr()
}

fn position<T>(all: &[Capture], stream: &Arc<T>) -> Option<usize> {
    all.iter().position(|capture| address(&capture.stream) == address(stream))
}

/// Wraps `cudaStreamBeginCapture`.
pub(crate) fn begin<T: Send + Sync + 'static>(stream: Arc<T>, mode: cudaStreamCaptureMode) -> Result<(), cudaError> {
    valid(mode)?;
    change(|all| {
        if position(all, &stream).is_some() {
            return Err(cudaError::cudaErrorIllegalState);
        }
        all.push(Capture { stream, mode, thread: std::thread::current().id(), spoilt: false });
        Ok(())
    })
}

/// Wraps `cudaStreamEndCapture`: a graph, or why there is none.
pub(crate) fn end<T>(stream: &Arc<T>) -> Result<cudaGraph_t, cudaError> {
    let capture = change(|all| {
        let found = position(all, stream).ok_or(cudaError::cudaErrorStreamCaptureUnmatched)?;
        if all[found].mode != RELAXED && all[found].thread != std::thread::current().id() {
            return Err(cudaError::cudaErrorStreamCaptureWrongThread);
        }
        Ok(all.swap_remove(found))
    })?;
    if capture.spoilt {
        return Err(cudaError::cudaErrorStreamCaptureInvalidated);
    }
    GRAPHS.insert(Arc::new(Graph)).ok_or(cudaError::cudaErrorMemoryAllocation)
}

/// Wraps `cudaStreamIsCapturing`.
pub(crate) fn status<T>(stream: &Arc<T>) -> cudaStreamCaptureStatus {
    let all = lock(&CAPTURES);
    match position(&all, stream) {
        None => cudaStreamCaptureStatus::cudaStreamCaptureStatusNone,
        Some(found) if all[found].spoilt => cudaStreamCaptureStatus::cudaStreamCaptureStatusInvalidated,
        Some(_) => cudaStreamCaptureStatus::cudaStreamCaptureStatusActive,
    }
}

/// Wraps `cudaGraphDestroy`.
pub(crate) fn destroy(graph: cudaGraph_t) -> Result<(), cudaError> {
    GRAPHS.remove(graph).map(drop).ok_or_else(|| {
        report::violation(format!("{graph:p} is no graph: destroyed before, or never made"));
        cudaError::cudaErrorInvalidValue
    })
}

/// To be asked by calls that are potentially unsafe: fails, and spoils the captures, where one is going on that this
/// thread must heed. That is any of its own, and those that other threads began in global mode; a thread in
/// thread-local mode heeds its own, one in relaxed mode none.
pub(crate) fn check() -> Result<(), cudaError> {
    if ONGOING.load(Ordering::Acquire) == 0 || MODE.get() == RELAXED {
        return Ok(());
    }
    let (me, mode) = (std::thread::current().id(), MODE.get());
    spoil(|capture| capture.mode != RELAXED && (capture.thread == me || capture.mode == GLOBAL && mode == GLOBAL))
}

/// To be asked before work is enqueued on `stream`, or it is asked for its progress.
pub(crate) fn check_stream<T>(stream: &Arc<T>) -> Result<(), cudaError> {
    if ONGOING.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    spoil(|capture| address(&capture.stream) == address(stream))
        .inspect_err(|_| report::line(format!("{}: the emulator captures no work", report::call())))
}

fn spoil(concerned: impl Fn(&Capture) -> bool) -> Result<(), cudaError> {
    let mut result = Ok(());
    for capture in lock(&CAPTURES).iter_mut().filter(|capture| concerned(capture)) {
        capture.spoilt = true;
        result = Err(cudaError::cudaErrorStreamCaptureUnsupported);
    }
    result
}

//! Streams that somebody captures into a graph.
//!
//! What is enqueued there is not done but written down, to be done as often as the graph is launched. So an event of ours would become a
//! part of the graph, memory that is freed there would be freed by it, and whoever asks how far the stream is spoils the capture. Only
//! streams whose handle others have can be captured by others: those are asked before anything happens there.
//!
//! Captures of this crate have streams of their own, on which nothing else is ever enqueued. What becomes part of them says so.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::thread::ThreadId;

use super::captures::Open;
use super::queue::Queue;
use crate::cuda::devices::check::check_on;
use crate::cuda::devices::device::Device;
use crate::error::{Error, Result};
use crate::lock::Mutex;
use crate::sys;

/// Wraps `cudaStreamIsCapturing`: whether it is being captured, or was, until something spoilt that. The null stream never is, but nobody
/// may use it while a stream is whose order it keeps.
pub(crate) fn is_captured(queue: Queue) -> Result<bool> {
    let mut status = sys::cudaStreamCaptureStatus::cudaStreamCaptureStatusNone;
    let _current = queue.hold_device("cudaStreamIsCapturing")?;
    // SAFETY: the handle is alive, as the caller's stream is; writes one value to the address given.
    let code = unsafe { sys::cudaStreamIsCapturing(queue.raw, &raw mut status) };
    let checked = check_on(queue.device.ordinal(), "cudaStreamIsCapturing", code);
    if code == sys::cudaError::cudaErrorStreamCaptureImplicit {
        return Ok(true);
    }
    checked?;
    Ok(status != sys::cudaStreamCaptureStatus::cudaStreamCaptureStatusNone)
}

/// Fails while `queue` is being captured. For streams that others have the handle of.
#[cold]
pub(crate) fn refuse(operation: &'static str, queue: Queue) -> Result<()> {
    if is_captured(queue)? {
        let reason = format!(
            "a stream of {} is being captured into a graph, where this would not be done now but as often as the graph is launched: \
             end the capture first, or use another stream",
            queue.device
        );
        return Err(Error::InvalidUsage { operation, reason });
    }
    Ok(())
}

/// A capture of this crate, as its streams know it.
pub(crate) struct Capture {
    /// Who captures.
    thread: ThreadId,
    over: AtomicBool,
    /// The devices of its streams, until it is ended.
    open: Mutex<Vec<Open>>,
    /// What is written down.
    book: Box<dyn Any + Send + Sync>,
}

impl Capture {
    /// One of this thread, that is written down in `book`.
    pub(crate) fn new(book: Box<dyn Any + Send + Sync>) -> Self {
        Self { thread: thread::current().id(), over: AtomicBool::new(false), open: Mutex::default(), book }
    }

    /// Before it has a stream of `device`: waits for who has to do with all of that.
    pub(crate) fn enter(&self, operation: &'static str, device: Device) -> Result<()> {
        let open = || self.open.lock();
        if open().iter().all(|open| open.device() != device) {
            let entered = Open::begin(operation, device)?;
            open().push(entered);
        }
        Ok(())
    }

    /// CUDA has ended it.
    pub(crate) fn leave(&self) {
        self.open.lock().clear();
    }

    /// What is written down, as whoever began it has it.
    pub(crate) fn book<B: Any>(&self) -> Option<&B> {
        self.book.downcast_ref()
    }

    /// Nothing more becomes part of it.
    pub(crate) fn set_over(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Fails where `operation` cannot become part of it now.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        let reason = if self.over.load(Ordering::Acquire) {
            "the stream was lent to the closure of a capture, which is over: launch the graph on another stream"
        } else if self.thread != thread::current().id() {
            "the stream belongs to a capture of another thread, which alone captures there"
        } else {
            return Ok(());
        };
        Err(Error::InvalidUsage { operation, reason: reason.to_owned() })
    }

    /// The error of `operation`, which cannot be part of any graph.
    pub(crate) fn refusal(&self, operation: &'static str) -> Error {
        let reason = "this is no work of the device alone, and so no part of a graph: do it on another stream, before or after the capture";
        self.check(operation).err().unwrap_or_else(|| Error::InvalidUsage { operation, reason: reason.to_owned() })
    }
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("thread", &self.thread).field("over", &self.over).finish_non_exhaustive()
    }
}

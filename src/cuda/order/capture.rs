//! Streams that somebody captures into a graph.
//!
//! What is enqueued there is not done but written down, to be done as often as the graph is launched. So an event of ours would become a
//! part of the graph, memory that is freed there would be freed by it, and whoever asks how far the stream is spoils the capture. Only
//! streams whose handle others have can be captured: those are asked before anything happens there.

use super::queue::Queue;
use crate::cuda::devices::check::check_on;
use crate::error::{Error, Result};
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

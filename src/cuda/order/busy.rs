//! The unfinished work of some devices at one moment.
//!
//! Some calls wait for a whole device and hold a lock of the driver meanwhile: `cudaFreeHost`, `cudaFree`, and NCCL where it frees a
//! communicator. Behind a host function or a kernel that does not end, each other call for that device then hangs too. So this
//! crate makes such a call only when the work that it knows of is done.
//!
//! It knows the streams that have a handle, but for those of [`Stream::from_raw`], which others may destroy at any moment, and what
//! was left on its own streams when they were dropped. `cuCtxRecordEvent` would see the work of all streams of a context, but it
//! also invalidates every capture in that context, and captures of other libraries cannot be seen.

#[cfg(feature = "nvshmem")]
use std::time::Duration;

use super::left;
use super::mark::Mark;
use super::stream::{self, Stream};
use crate::cuda::devices::device::Device;
#[cfg(feature = "nvshmem")]
use crate::error::{Error, Result};

/// The work of some devices that was not done when this was made.
pub(crate) struct Busy {
    /// Streams that had no room for a mark, or may have none.
    streams: Vec<Stream>,
    marks: Vec<Mark>,
}

impl Busy {
    /// What `devices` are busy with. Does not wait.
    pub(crate) fn with(devices: &[Device]) -> Self {
        let mut busy = Self::of(|stream| devices.contains(&stream.device()));
        busy.marks.extend(left::on(devices));
        busy
    }

    /// The work of those streams of `device` that take turns with its legacy default stream. Does not wait.
    #[cfg(feature = "nvshmem")]
    pub(crate) fn in_legacy_order(device: Device) -> Self {
        let mut busy = Self::of(|stream| stream.device() == device && stream.queue().is_in_legacy_order());
        busy.marks.extend(left::in_legacy_order(device));
        busy
    }

    /// Fails while such a stream is being captured: CUDA refuses work on the legacy default stream meanwhile. Captures of streams that this crate
    /// does not know, it does not see.
    #[cfg(feature = "nvshmem")]
    pub(crate) fn check_legacy_order(operation: &'static str, device: Device) -> Result<()> {
        let is_it =
            |stream: &Stream| stream.device() == device && stream.is_captured() && stream.queue().is_in_legacy_order();
        if !stream::all_kept().iter().any(is_it) {
            return Ok(());
        }
        let reason = format!(
            "a stream of {device} that takes turns with its legacy default stream, which this uses, is being captured: end the capture before"
        );
        Err(Error::InvalidUsage { operation, reason })
    }

    fn of(pick: impl Fn(&Stream) -> bool) -> Self {
        let (mut streams, mut marks) = (Vec::new(), Vec::new());
        for stream in stream::all_kept().into_iter().filter(|stream| pick(stream) && is_busy(stream)) {
            // Behind an event on the legacy default stream, all blocking streams would wait.
            let has_room =
                !stream.queue().is_legacy() && stream.in_flight().has_reserve(stream.queue()).unwrap_or(false);
            match has_room.then(|| stream.in_flight().mark_all(stream.queue())) {
                Some(Ok(Some(mark))) => marks.push(mark),
                _ => streams.push(stream),
            }
        }
        Self { streams, marks }
    }

    /// Returns true if all of that work is done, or its device has failed. Does not wait.
    pub(crate) fn is_over(&mut self) -> bool {
        self.streams.retain(is_busy);
        self.marks.retain(|mark| !mark.reached().unwrap_or(true));
        self.streams.is_empty() && self.marks.is_empty()
    }

    /// One of the devices that are busy.
    pub(crate) fn device(&self) -> Option<Device> {
        self.streams.iter().map(Stream::device).chain(self.marks.iter().map(Mark::device)).next()
    }
}

/// For how long somebody has waited for a stream of `device` in vain, at most, which has not moved since. Does not wait.
#[cfg(feature = "nvshmem")]
pub(crate) fn last_timeout(device: Device) -> Duration {
    let streams = stream::all_kept().into_iter().filter(|stream| stream.device() == device && is_busy(stream));
    streams.map(|stream| stream.last_timeout()).max().unwrap_or_default()
}

/// A wait for work of `device`, on whatever stream, has ended with `error`. Counts only if that is late.
#[cfg(feature = "nvshmem")]
pub(crate) fn give_up_on(device: Device, error: &Error) {
    let streams = stream::all_kept().into_iter().filter(|stream| stream.device() == device);
    streams.for_each(|stream| stream.give_up_all(error));
}

/// Returns true if one of `devices` is busy with anything but streams that `skip` picks. Does not wait.
#[cfg(feature = "nccl")]
pub(crate) fn are_busy(devices: &[Device], skip: impl Fn(&Stream) -> bool) -> bool {
    let is_it = |stream: &Stream| devices.contains(&stream.device()) && !skip(stream) && is_busy(stream);
    stream::all_kept().iter().any(is_it) || !left::on(devices).is_empty()
}

/// As [`are_busy`], but calls nothing of CUDA: work that nobody has seen done counts.
#[cfg(feature = "nccl")]
pub(crate) fn may_be_busy(devices: &[Device], skip: impl Fn(&Stream) -> bool) -> bool {
    let is_it = |stream: &Stream| devices.contains(&stream.device()) && !skip(stream) && has_unseen_work(stream);
    stream::all_kept().iter().any(is_it) || left::may_be_on(devices)
}

/// Returns true if work of this crate on `stream` is not known to be done.
fn has_unseen_work(stream: &Stream) -> bool {
    stream.in_flight().places() > 0
}

/// A stream that is being captured does nothing meanwhile. To query the legacy default stream would invalidate captures of
/// others, so this is only done if this crate has used it.
fn is_busy(stream: &Stream) -> bool {
    let is_asked = has_unseen_work(stream) || !stream.queue().is_legacy();
    is_asked && !stream.is_captured() && !stream.is_drained().unwrap_or(true)
}

//! What the devices are busy with at one moment.
//!
//! Some calls wait for a whole device and hold a lock of the driver meanwhile: `cudaFreeHost`, `cudaFree`, and NCCL where it frees a
//! communicator. Behind a host function or a kernel that does not end, each other call for that device then hangs too. So this
//! crate makes such a call only when the work that it knows of is done.
//!
//! It knows the streams that have a handle, but for those of [`Stream::from_raw`], which others may destroy at any moment, and what
//! was left on its own streams when they were dropped.

use std::sync::{Mutex, PoisonError};

use super::mark::Mark;
use super::stream::{self, Stream};
use crate::cuda::devices::device::Device;

/// The work of some devices that was not done when this was made.
pub(crate) struct Busy {
    streams: Vec<(Stream, Option<Mark>)>,
    left: Vec<Mark>,
}

/// What streams that are gone had not done, by device.
static LEFT: Mutex<Vec<(Device, Mark)>> = Mutex::new(Vec::new());

impl Busy {
    /// What `devices` are busy with. Does not wait.
    pub(crate) fn with(devices: &[Device]) -> Self {
        let streams = stream::all_kept().into_iter();
        let streams = streams.filter(|stream| devices.contains(&stream.device()) && is_busy(stream));
        let streams = streams.map(|stream| {
            // Without room for a mark, the stream is asked whether it is idle.
            let has_room = stream.in_flight().has_reserve(stream.queue()).unwrap_or(false);
            let mark = has_room.then(|| stream.in_flight().mark_all(stream.queue()).ok().flatten()).flatten();
            (stream, mark)
        });
        let streams = streams.collect();
        Self { streams, left: left_on(devices) }
    }

    /// Returns true if all of that work is done, or its device has failed. Does not wait.
    pub(crate) fn is_over(&mut self) -> bool {
        self.streams.retain(|(stream, mark)| match mark {
            Some(mark) => !mark.reached().unwrap_or(true),
            None => is_busy(stream),
        });
        self.left.retain(|mark| !mark.reached().unwrap_or(true));
        self.streams.is_empty() && self.left.is_empty()
    }

    /// One of the devices that are busy.
    pub(crate) fn device(&self) -> Option<Device> {
        let streams = self.streams.iter().map(|(stream, _)| stream.device());
        streams.chain(self.left.iter().map(Mark::device)).next()
    }
}

/// Returns true if one of `devices` is busy with anything but streams that `skip` picks. Does not wait.
#[cfg(feature = "nccl")]
pub(crate) fn are_busy(devices: &[Device], skip: impl Fn(&Stream) -> bool) -> bool {
    let is_it = |stream: &Stream| devices.contains(&stream.device()) && !skip(stream) && is_busy(stream);
    stream::all_kept().iter().any(is_it) || !left_on(devices).is_empty()
}

fn left_on(devices: &[Device]) -> Vec<Mark> {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain(|(_, mark)| !mark.reached().unwrap_or(true));
    left.iter().filter(|(device, _)| devices.contains(device)).map(|(_, mark)| mark.clone()).collect()
}

/// A stream that is being captured does nothing meanwhile.
fn is_busy(stream: &Stream) -> bool {
    !stream.is_captured() && !stream.is_drained().unwrap_or(true)
}

/// The last handle of a stream of this crate goes: what it has not done goes on.
pub(super) fn leave(device: Device, mark: Mark) {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    if left.len() >= 8 && left.len().is_power_of_two() {
        left.retain(|(_, mark)| !mark.reached().unwrap_or(true));
    }
    left.push((device, mark));
}

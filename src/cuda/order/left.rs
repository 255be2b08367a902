//! The unfinished work of destroyed streams. CUDA completes it after `cudaStreamDestroy`.

use super::mark::Mark;
use super::queue::Queue;
use crate::cuda::devices::device::Device;
use crate::error::Error;
use crate::lock::{Mutex, MutexGuard};

/// Work of a stream that was destroyed.
#[derive(Clone)]
struct Left {
    mark: Mark,
    /// Whether the stream took turns with the legacy default stream.
    #[cfg(feature = "nvshmem")]
    in_legacy_order: bool,
}

static ALL: Mutex<Vec<Left>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Left>> {
    ALL.lock()
}

/// Remembers `mark`, recorded behind all work of `stream`, which is about to be destroyed.
#[cfg_attr(not(feature = "nvshmem"), allow(unused_variables))]
pub(super) fn add(mark: Mark, stream: Queue) {
    let left = Left {
        mark,
        #[cfg(feature = "nvshmem")]
        in_legacy_order: stream.is_in_legacy_order(),
    };
    let count = {
        let mut all = all();
        all.push(left);
        all.len()
    };
    if count >= 8 && count.is_power_of_two() {
        forget_done();
    }
}

/// Returns the marks on `devices` that are not reached.
pub(super) fn on(devices: &[Device]) -> Vec<Mark> {
    marks(|left| devices.contains(&left.mark.device()))
}

/// Returns those of streams of `device` that took turns with its legacy default stream.
#[cfg(feature = "nvshmem")]
pub(super) fn in_legacy_order(device: Device) -> Vec<Mark> {
    marks(|left| left.in_legacy_order && left.mark.device() == device)
}

fn marks(pick: impl Fn(&&Left) -> bool) -> Vec<Mark> {
    forget_done();
    all().iter().filter(pick).map(|left| left.mark.clone()).collect()
}

/// Returns true if a mark on `devices` is not known to be reached. Does not ask CUDA.
#[cfg(feature = "nccl")]
pub(super) fn may_be_on(devices: &[Device]) -> bool {
    all().iter().any(|left| devices.contains(&left.mark.device()))
}

/// Removes the marks that are reached. A mark that cannot be queried, as in a host function, stays. CUDA is asked outside of
/// the lock: it may block.
fn forget_done() {
    let known = all().clone();
    let is_done = |mark: &Mark| matches!(mark.reached(), Ok(true) | Err(Error::DeviceLost { .. }));
    let done: Vec<_> = known.iter().map(|left| &left.mark).filter(|mark| is_done(mark)).map(Mark::number).collect();
    all().retain(|left| !done.contains(&left.mark.number()));
}

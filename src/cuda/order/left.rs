//! The unfinished work of destroyed streams. CUDA completes it after `cudaStreamDestroy`.

use super::mark::Mark;
use crate::cuda::devices::device::Device;
use crate::error::Error;
use crate::lock::{Mutex, MutexGuard};

static ALL: Mutex<Vec<Mark>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Mark>> {
    ALL.lock()
}

/// Remembers `mark`, recorded behind all work of a stream that is about to be destroyed.
pub(super) fn add(mark: Mark) {
    let count = {
        let mut all = all();
        all.push(mark);
        all.len()
    };
    if count >= 8 && count.is_power_of_two() {
        forget_done();
    }
}

/// Returns the marks on `devices` that are not reached.
pub(super) fn on(devices: &[Device]) -> Vec<Mark> {
    forget_done();
    all().iter().filter(|mark| devices.contains(&mark.device())).cloned().collect()
}

/// Returns true if a mark on `devices` is not known to be reached. Does not ask CUDA.
#[cfg(feature = "nccl")]
pub(super) fn may_be_on(devices: &[Device]) -> bool {
    all().iter().any(|mark| devices.contains(&mark.device()))
}

/// Removes the marks that are reached. A mark that cannot be queried, as in a host function, stays. CUDA is asked outside of
/// the lock: it may block.
fn forget_done() {
    let known = all().clone();
    let is_done = |mark: &Mark| matches!(mark.reached(), Ok(true) | Err(Error::DeviceLost { .. }));
    let done: Vec<_> = known.iter().filter(|mark| is_done(mark)).map(Mark::number).collect();
    all().retain(|mark| !done.contains(&mark.number()));
}

//! The unfinished work of destroyed streams. CUDA completes it after `cudaStreamDestroy`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::mark::Mark;
use crate::cuda::devices::device::Device;
use crate::error::Error;

static ALL: Mutex<Vec<Mark>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Mark>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers `mark`, recorded behind all work of a stream that is about to be destroyed.
pub(super) fn add(mark: Mark) {
    let mut all = all();
    if all.len() >= 8 && all.len().is_power_of_two() {
        forget_done(&mut all);
    }
    all.push(mark);
}

/// Returns the marks on `devices` that are not reached.
pub(super) fn on(devices: &[Device]) -> Vec<Mark> {
    let mut all = all();
    forget_done(&mut all);
    all.iter().filter(|mark| devices.contains(&mark.device())).cloned().collect()
}

/// Removes the marks that are reached. A mark that cannot be queried, as in a host function, stays.
fn forget_done(all: &mut Vec<Mark>) {
    all.retain(|mark| !matches!(mark.reached(), Ok(true) | Err(Error::DeviceLost { .. })));
}

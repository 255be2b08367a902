//! What the streams of this crate that are gone had not done: CUDA goes on with it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::mark::Mark;
use crate::cuda::devices::device::Device;
use crate::error::Error;

static ALL: Mutex<Vec<Mark>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Mark>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last handle of a stream goes, which has not come to `mark`, behind all that it has.
pub(super) fn add(mark: Mark) {
    let mut all = all();
    if all.len() >= 8 && all.len().is_power_of_two() {
        forget_done(&mut all);
    }
    all.push(mark);
}

/// What is not done of it on `devices`.
pub(super) fn on(devices: &[Device]) -> Vec<Mark> {
    let mut all = all();
    forget_done(&mut all);
    all.iter().filter(|mark| devices.contains(&mark.device())).cloned().collect()
}

/// What cannot be asked, as in a host function, stays.
fn forget_done(all: &mut Vec<Mark>) {
    all.retain(|mark| !matches!(mark.reached(), Ok(true) | Err(Error::DeviceLost { .. })));
}

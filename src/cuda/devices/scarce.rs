//! Memory of a device that has run out, though some is about to be freed by those whom nobody waits for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::device::Device;
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};

/// How long such memory is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether somebody is about to free memory of a device.
static HOLDS: OnceLock<fn(Device) -> bool> = OnceLock::new();

/// How often memory was freed so.
static FREED: AtomicU64 = AtomicU64::new(0);

/// Somebody frees memory that nobody waits for, and knows by `holds` whether there is more of it. What is held no more has been
/// [`freed`] before.
pub(crate) fn set_holder(holds: fn(Device) -> bool) {
    let _ = HOLDS.set(holds);
}

/// Such memory was freed, of whatever device.
pub(crate) fn freed() {
    FREED.fetch_add(1, Ordering::AcqRel);
}

/// Makes `attempt` to get memory of `device`, and makes it again as long as memory has run out and more is being freed; no longer
/// than `timeout`. An attempt at more than the device has at all is made once.
pub(crate) fn persist<R>(device: Device, timeout: Duration, mut attempt: impl FnMut() -> Result<R>) -> Result<R> {
    let mut deadline = None;
    loop {
        let before = FREED.load(Ordering::Acquire);
        match attempt() {
            Err(Error::OutOfMemory { bytes, .. })
                if has(device, bytes)
                    && frees_more(
                        device,
                        before,
                        deadline.get_or_insert_with(|| Deadline::after(timeout.min(PATIENCE))),
                    ) => {}
            made => return made,
        }
    }
}

/// Whether `device` has so many bytes, used or free.
#[cold]
fn has(device: Device, bytes: usize) -> bool {
    device.memory_info().map_or(true, |info| bytes <= info.total)
}

/// Waits until memory was freed since it had been so `before` times; false where none of `device` is about to be, or the deadline
/// passes.
#[cold]
fn frees_more(device: Device, before: u64, deadline: &Deadline) -> bool {
    let mut round = 0;
    loop {
        let more = HOLDS.get().is_some_and(|holds| holds(device));
        // Second: what is held no more was counted before.
        if FREED.load(Ordering::Acquire) != before {
            return true;
        }
        if !more || deadline.expired() {
            return false;
        }
        backoff(round);
        round += 1;
    }
}

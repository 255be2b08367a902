//! The lock that the driver has for each device.
//!
//! As was seen on H200s, who waits for a device in `cudaFreeHost` or `cudaFree` holds it: calls of other threads that enqueue
//! there, or make or destroy something there, wait too, also when the device waits for just these threads.
//! GPUCOMM_EMULATOR_DRIVER_LOCK=0 does without; with 2, `cudaFreeHost` and `cudaHostAlloc` wait for all devices, as others
//! have reported and we have not seen.

use super::device::{self, Device};
use crate::settings::settings;
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

/// For a call that enqueues or makes something. One call takes it once: a second time would wait behind who waits for the
/// first.
pub(crate) fn shared(device: &Device) -> Option<RwLockReadGuard<'_, ()>> {
    (settings().driver_lock > 0).then(|| device.driver.read().unwrap_or_else(PoisonError::into_inner))
}

/// For a call that waits for the device, as long as it does.
pub(crate) fn exclusive(device: &Device) -> Option<RwLockWriteGuard<'_, ()>> {
    (settings().driver_lock > 0).then(|| device.driver.write().unwrap_or_else(PoisonError::into_inner))
}

/// For a call of another device that concerns this one: waits until nobody waits for it.
pub(crate) fn pass(device: &Device) {
    drop(shared(device));
}

/// Waits for the device, with its lock.
pub(crate) fn wait_for(device: &Device) {
    let _alone = exclusive(device);
    device.synchronize();
}

/// Waits for one device after the other.
pub(crate) fn wait_for_all() {
    device::devices().iter().for_each(wait_for);
}

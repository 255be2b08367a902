//! The lock of the driver, where one is asked for: GPUCOMM_EMULATOR_DRIVER_LOCK=1.
//!
//! A call that waits for devices then keeps all other threads from enqueuing and allocating until it is done. Real drivers
//! are suspected of that, in some versions and some cases; a program that hangs here may hang there. With 2, `cudaHostAlloc`
//! is such a call too; on H200s it was seen not to be.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::emulator::settings::settings;

static LOCK: RwLock<()> = RwLock::new(());

/// For a call that enqueues or allocates. One call takes it once: a second time would wait behind who waits for the first.
pub(super) fn shared() -> Option<RwLockReadGuard<'static, ()>> {
    (settings().driver_lock > 0).then(|| LOCK.read().unwrap_or_else(PoisonError::into_inner))
}

/// For a call that waits for devices, as long as it does.
pub(super) fn exclusive() -> Option<RwLockWriteGuard<'static, ()>> {
    (settings().driver_lock > 0).then(|| LOCK.write().unwrap_or_else(PoisonError::into_inner))
}

//! Memory of NCCL that was dropped while the device still used it.
//!
//! `ncclMemFree` does not wait for the device, and a destructor must not wait long, so such memory is kept here until
//! its uses are done. The watchdog looks; closing a communicator does too.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::inner::Inner;
use super::watchdog;
use crate::cuda::{Device, Freed, Uses};
use crate::deadline::{Deadline, backoff};
use crate::sys;

/// A registered window; NCCL before 2.27 has none.
#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window(pub(crate) sys::ncclWindow_t);

// SAFETY: a handle, used under the lock of its communicator only.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

/// Memory to be freed.
struct Remains {
    ptr: *mut c_void,
    device: Device,
    uses: Uses,
    inner: Arc<Inner>,
    window: Option<Window>,
}

// SAFETY: the pointer is an address of device memory that only `free` gives back.
unsafe impl Send for Remains {}

static REMAINS: Mutex<Vec<Remains>> = Mutex::new(Vec::new());

fn remains() -> MutexGuard<'static, Vec<Remains>> {
    REMAINS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held while remains are out of the list to be freed, so that nobody who waits for them takes the list for all there is.
static REAPING: Mutex<()> = Mutex::new(());

pub(crate) fn is_empty() -> bool {
    remains().is_empty()
}

/// Frees memory at once if nothing uses it any more, else later.
pub(crate) fn bury(freed: Freed, inner: &Arc<Inner>, window: Option<Window>) {
    let mut one = Remains { ptr: freed.ptr, device: freed.device, uses: freed.uses, inner: Arc::clone(inner), window };
    let kept = if one.idle() { one.free() } else { Some(one) };
    if let Some(one) = kept {
        remains().push(one);
        watchdog::wake();
    }
}

/// Frees what is no longer used, unless another thread is at it.
pub(crate) fn reap() {
    let _reaping = match REAPING.try_lock() {
        Ok(reaping) => reaping,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    let waiting = std::mem::take(&mut *remains());
    let mut kept = Vec::new();
    for mut one in waiting {
        kept.extend(if one.idle() { one.free() } else { Some(one) });
    }
    remains().append(&mut kept);
}

/// Frees what belongs to one communicator, waiting for it until the deadline.
pub(crate) fn drain(communicator: u64, deadline: &Deadline) {
    let mut round = 0;
    while !deadline.expired() {
        reap();
        let all_here = !matches!(REAPING.try_lock(), Err(TryLockError::WouldBlock));
        if all_here && !remains().iter().any(|one| one.inner.id == communicator) {
            return;
        }
        backoff(round);
        round += 1;
    }
}

impl Remains {
    /// Whether nothing uses the memory. Where the device cannot tell, the memory stays.
    fn idle(&mut self) -> bool {
        self.uses.idle().unwrap_or(false)
    }

    /// Frees the memory, or gives it back while it is a window of a communicator that is coming to its end.
    fn free(self) -> Option<Self> {
        if let Some(window) = self.window
            && !deregister(&self.inner, window)
        {
            return Some(self);
        }
        // Without its device the memory stays allocated.
        let _current = self.device.set_current().ok()?;
        // SAFETY: from `ncclMemAlloc`, freed once, by whoever holds the only `Remains` of it; nothing uses it any more, and
        // no window lies over it.
        let _ = unsafe { sys::ncclMemFree(self.ptr) };
        None
    }
}

/// Whether the window is gone.
#[cfg(nccl_ge_2_27)]
fn deregister(inner: &Arc<Inner>, Window(window): Window) -> bool {
    // Who holds the lock may be waiting for a peer: the watchdog must not wait with it, nor a destructor.
    let Some(guard) = inner.try_lock() else { return false };
    match guard.handle {
        Some(super::inner::Handle(handle)) if inner.is_active() => {
            // SAFETY: a live communicator under its lock, and a window of it that is deregistered once.
            let _ = unsafe { sys::ncclCommWindowDeregister(handle, window) };
            true
        }
        // A communicator that has ended took its windows with it; one that is about to has not yet.
        _ => inner.has_ended(),
    }
}

#[cfg(not(nccl_ge_2_27))]
fn deregister(_inner: &Arc<Inner>, _window: Window) -> bool {
    true
}

//! Memory of NCCL that was dropped while the device still used it.
//!
//! `ncclMemFree` does not wait for the device, and a destructor must not wait long, so such memory is kept here until
//! its uses are done. The watchdog looks; closing a communicator does too.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::inner::Inner;
use crate::cuda::{Device, Freed, Uses};
use crate::deadline::{Deadline, backoff};
use crate::sys;

/// A registered window.
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

pub(crate) fn is_empty() -> bool {
    remains().is_empty()
}

/// Frees memory at once if nothing uses it any more, else later.
pub(crate) fn bury(freed: Freed, inner: &Arc<Inner>, window: Option<Window>) {
    let mut one = Remains { ptr: freed.ptr, device: freed.device, uses: freed.uses, inner: Arc::clone(inner), window };
    if one.idle() {
        one.free();
    } else {
        remains().push(one);
    }
}

/// Frees what is no longer used.
pub(crate) fn reap() {
    let mut waiting = std::mem::take(&mut *remains());
    let mut kept = Vec::new();
    for mut one in waiting.drain(..) {
        if one.idle() { one.free() } else { kept.push(one) }
    }
    remains().append(&mut kept);
}

/// Frees what belongs to one communicator, waiting for it until the deadline.
pub(crate) fn drain(communicator: u64, deadline: &Deadline) {
    let mut round = 0;
    while !deadline.expired() {
        reap();
        if !remains().iter().any(|one| one.inner.id == communicator) {
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

    fn free(self) {
        if let Some(window) = self.window {
            deregister(&self.inner, window);
        }
        let Ok(_current) = self.device.set_current() else { return };
        // SAFETY: from `ncclMemAlloc`, freed once, by whoever holds the only `Remains` of it; nothing uses it any more.
        let _ = unsafe { sys::ncclMemFree(self.ptr) };
    }
}

#[cfg(nccl_ge_2_27)]
fn deregister(inner: &Arc<Inner>, Window(window): Window) {
    // A communicator that has ended took its windows with it.
    if let Ok((_guard, handle)) = inner.enter("ncclCommWindowDeregister") {
        // SAFETY: a live communicator under its lock, and a window of it that is deregistered once.
        let _ = unsafe { sys::ncclCommWindowDeregister(handle, window) };
    }
}

#[cfg(not(nccl_ge_2_27))]
fn deregister(_inner: &Arc<Inner>, _window: Window) {}

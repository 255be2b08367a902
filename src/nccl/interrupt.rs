//! Waking a thread that blocks inside NCCL.
//!
//! The first operation on a communicator, or the first with a peer, exchanges addresses inside the call, and a peer that
//! never comes leaves it blocked. `ncclCommRevoke` (2.28.7) makes it return with an error and frees nothing, so it may be
//! called from another thread without the lock; measured, it takes 0.5 to 0.9 s. Only a call that really waits may be woken:
//! one that goes on would lose what it uses. With older versions nothing safe can be done, and the call blocks until the
//! peer comes.

use std::sync::atomic::Ordering;

use super::inner::{Handle, Inner};
use crate::deadline::{Deadline, backoff};

/// Makes the thread that is inside NCCL on `inner` leave it, if NCCL can do that; true if it left before the deadline.
///
/// The caller has condemned `inner` and so alone may end it: the handle stays live for as long as this runs.
pub(crate) fn interrupt(inner: &Inner, handle: Handle, deadline: &Deadline) -> bool {
    let visit = inner.entered.load(Ordering::Acquire);
    if visit.is_multiple_of(2) {
        return true;
    }
    revoke(handle, deadline);
    let mut round = 0;
    while inner.entered.load(Ordering::Acquire) == visit {
        if deadline.expired() {
            return false;
        }
        backoff(round);
        round += 1;
    }
    true
}

#[cfg(nccl_ge_2_28_7)]
fn revoke(handle: Handle, deadline: &Deadline) {
    use crate::sys;

    let _ = super::detached::run("ncclCommRevoke", deadline, move || {
        // SAFETY: the handle is live until the caller of `interrupt` ends it, which it does only after the other thread
        // left. Revoking sets flags that NCCL reads while it waits, and is made to be called while calls are under way.
        unsafe { sys::ncclCommRevoke(handle.raw(), sys::NCCL_REVOKE_DEFAULT as std::ffi::c_int) }
    });
}

#[cfg(not(nccl_ge_2_28_7))]
fn revoke(_handle: Handle, _deadline: &Deadline) {}

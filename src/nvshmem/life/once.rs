//! There is one context a process.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::lock::Mutex;
use crate::sys;

pub(super) const INIT: &str = "Context::init";

/// The one context of this process.
static STATE: AtomicU8 = AtomicU8::new(NONE);
const NONE: u8 = 0;
const THERE: u8 = 1;
/// A start is on its way within the library, or has failed there, or a context was not closed: the library is in a state of which nobody knows.
const SPOILT: u8 = 2;

/// Held by who makes an id, and by who begins a start: the library loads its bootstrap into one place of the process, without a lock.
static BOOTSTRAP: Mutex<()> = Mutex::new(());

/// Runs `f`, which has the library make an id.
///
/// # Errors
/// [`Error::InvalidUsage`] where a context is there, starts or was left behind, and where the library runs without one, or keeps its PEs.
pub(super) fn beside_no_context<R>(operation: &'static str, f: impl FnOnce() -> Result<R>) -> Result<R> {
    let _one = BOOTSTRAP.lock();
    let reason = match STATE.load(Ordering::Acquire) {
        // SAFETY: may be called at any time.
        NONE => match unsafe { sys::nvshmemx_init_status() } {
            sys::NVSHMEM_STATUS_NOT_INITIALIZED => return f(),
            sys::NVSHMEM_STATUS_IS_BOOTSTRAPPED => {
                "NVSHMEM has its PEs from an earlier start in this process, and keeps them: its bootstrap would be loaded anew, for an id of which it takes no notice"
            }
            _ => "somebody else has started NVSHMEM in this process, whose bootstrap the library would load anew",
        },
        THERE => {
            "there is a context in this process, whose bootstrap the library would load anew: make the id before it starts, or after its end"
        }
        _ => {
            "a context of this process starts, or was left without an end, or an id could not be made: the library would load its bootstrap anew: make the id before it starts, or in another process"
        }
    };
    Err(Error::InvalidUsage { operation, reason: reason.to_owned() })
}

/// A number for a start, another one for each of this process.
pub(super) fn number() -> u64 {
    static STARTS: AtomicU64 = AtomicU64::new(0);
    STARTS.fetch_add(1, Ordering::Relaxed)
}

/// It has started.
pub(super) fn there() {
    STATE.store(THERE, Ordering::Release);
}

/// The context was closed: another one can be started.
pub(super) fn ended() {
    STATE.store(NONE, Ordering::Release);
}

/// It was dropped, or its end has failed.
pub(super) fn spoilt() {
    STATE.store(SPOILT, Ordering::Release);
}

/// Where the start fails before the library was called, it can be tried again.
pub(super) struct Claimed(());

impl Drop for Claimed {
    fn drop(&mut self) {
        let _ = STATE.compare_exchange(THERE, NONE, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl Claimed {
    /// This start is the one.
    ///
    /// # Errors
    /// [`Error::InvalidUsage`] where there is a context, or was one that has left the library in a state of which nobody knows.
    pub(super) fn claim() -> Result<Self> {
        // Nobody makes an id now, or from now on.
        let _one = BOOTSTRAP.lock();
        let reason = match STATE.compare_exchange(NONE, THERE, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Ok(Self(())),
            Err(THERE) => {
                "there is a context in this process already, or one starts, and NVSHMEM has one a process: run each PE as a process of its own"
            }
            Err(_) => {
                "a context of this process was dropped without Context::close, or did not start or end, or an id could not be made: NVSHMEM cannot be started again"
            }
        };
        Err(Error::InvalidUsage { operation: INIT, reason: reason.to_owned() })
    }

    /// It has succeeded.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

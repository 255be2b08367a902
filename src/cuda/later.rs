//! Memory of a pool that is freed in the order of a stream, when that has room for it.
//!
//! Dropping a buffer never waits. Behind work that hangs, the frees of many buffers would fill the launch queue of their
//! stream, and the next one would wait inside the driver. So what finds no room is kept here, until the stream goes on.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::check::check;
use super::stream::Stream;
use super::uses::{Access, Uses};
use crate::error::Result;
use crate::sys;

struct Later {
    ptr: *mut c_void,
    home: Stream,
    uses: Uses,
}

// SAFETY: the pointer is an address of device memory that only `now` gives back; everything else is Send.
unsafe impl Send for Later {}

static WAITING: Mutex<Vec<Later>> = Mutex::new(Vec::new());

/// Whether there may be anything in [`WAITING`].
static ANY: AtomicBool = AtomicBool::new(false);

/// Wraps `cudaFreeAsync`: frees `ptr` in the order of `home`, after all uses. Does not wait.
///
/// # Safety
/// `ptr` is from `cudaMallocFromPoolAsync`, not freed yet, and all that uses it is in `uses`.
pub(super) unsafe fn free(ptr: *mut c_void, home: Stream, uses: Uses) -> Result<()> {
    home.device().ready()?;
    let one = Later { ptr, home, uses };
    if one.has_room()? {
        return one.now();
    }
    WAITING.lock().unwrap_or_else(PoisonError::into_inner).push(one);
    ANY.store(true, Ordering::Release);
    Ok(())
}

/// Frees what has found room.
#[inline]
pub(super) fn retry() {
    if ANY.load(Ordering::Relaxed) {
        try_all();
    }
}

#[cold]
fn try_all() {
    let all = {
        let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        ANY.store(false, Ordering::Relaxed);
        std::mem::take(&mut *waiting)
    };
    // Where something fails, the memory is leaked: the device may still use it.
    let keep: Vec<_> = all
        .into_iter()
        .filter_map(|one| match one.has_room() {
            Ok(false) => Some(one),
            Ok(true) => one.now().err().and(None),
            Err(_) => None,
        })
        .collect();
    if !keep.is_empty() {
        WAITING.lock().unwrap_or_else(PoisonError::into_inner).extend(keep);
        ANY.store(true, Ordering::Release);
    }
}

impl Later {
    fn has_room(&self) -> Result<bool> {
        self.home.in_flight().has_reserve(&self.home)
    }

    fn now(mut self) -> Result<()> {
        self.uses.order(Access::Write, &self.home)?;
        // SAFETY: as the caller of `free` promised; `home` waits for every use of other streams.
        let code = unsafe { sys::cudaFreeAsync(self.ptr, self.home.raw()) };
        self.home.count(super::in_flight::ENTRY);
        check("cudaFreeAsync", code)
    }
}

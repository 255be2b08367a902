//! Calls of NCCL in one group of this thread.

use super::check::check;
use crate::cuda::undisturbing;
use crate::error::Result;
use crate::sys;

/// Ends the group of this thread.
struct Open;

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: this thread has opened the group. After an error NCCL makes none of its calls.
        let _ = unsafe { sys::ncclGroupEnd() };
    }
}

/// Makes `calls` in one group. NCCL makes all of them when the group ends, or none if one of them has
/// failed. The first error counts. `function` names the end of the group in errors.
pub(crate) fn grouped(function: &'static str, calls: impl FnOnce() -> Result<()>) -> Result<()> {
    // SAFETY: the group ends below, also if `calls` panics.
    check("ncclGroupStart", unsafe { sys::ncclGroupStart() })?;
    let open = Open;
    let made = calls();
    std::mem::forget(open);
    // SAFETY: this thread has opened the group. After an error NCCL makes none of its calls. NCCL allocates on this thread if there is one
    // communicator.
    let ended = undisturbing(|| check(function, unsafe { sys::ncclGroupEnd() }));
    made.and(ended)
}

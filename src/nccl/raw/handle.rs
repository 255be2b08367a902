//! What C knows a communicator by.

use crate::sys;

/// The C handle. NCCL's communicators belong to no thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) sys::ncclComm_t);

impl Handle {
    #[inline]
    pub(crate) fn raw(self) -> sys::ncclComm_t {
        self.0
    }
}

// SAFETY: a communicator may be used from any thread, one at a time; the gate in `Inner` sees to that.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

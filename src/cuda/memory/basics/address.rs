//! Addresses of device memory.

use std::ffi::c_void;

/// An address of device memory, which nobody reads through on the host; null where there are no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address(*mut c_void);

// SAFETY: a number to the host, which is given to CUDA and NCCL by whoever holds the memory.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    #[inline]
    pub(crate) fn new(ptr: *mut c_void) -> Self {
        Self(ptr)
    }

    #[inline]
    pub(crate) fn ptr(self) -> *mut c_void {
        self.0
    }

    /// The address so many bytes further on.
    #[inline]
    pub(crate) fn add(self, bytes: usize) -> Self {
        Self(self.0.wrapping_byte_add(bytes))
    }
}

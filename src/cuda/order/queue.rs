//! What CUDA knows a stream by.

use crate::cuda::devices::device::Device;
use crate::sys;

/// A stream's handle and device, for those who have no share in its life.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    pub(crate) raw: sys::cudaStream_t,
    pub(crate) device: Device,
    /// Unlike that of any other stream, also of those that are gone.
    pub(crate) serial: u64,
}

// SAFETY: the CUDA runtime allows streams to be used from any thread, and from several at a time; the handle is never read through.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

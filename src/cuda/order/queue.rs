//! What CUDA knows a stream by.

use crate::cuda::devices::check::check_on;
use crate::cuda::devices::current::CurrentDevice;
use crate::cuda::devices::device::Device;
use crate::error::Result;
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

/// `cudaStreamLegacy`: the null stream, that of whatever device is current.
pub(crate) const LEGACY: usize = 1;

impl Queue {
    /// Whether it is the null stream of its device.
    #[inline]
    pub(crate) fn is_legacy(&self) -> bool {
        self.raw.addr() == LEGACY
    }

    /// What has to be kept during a call with the handle: that of the null stream means another stream where another device is current.
    #[inline]
    pub(crate) fn hold_device(&self, operation: &'static str) -> Result<Option<CurrentDevice>> {
        if self.is_legacy() { self.device.make_current(operation).map(Some) } else { Ok(None) }
    }

    /// Wraps `cudaStreamGetFlags`.
    pub(crate) fn flags(&self) -> Result<u32> {
        const C: &str = "cudaStreamGetFlags";
        let _current = self.hold_device(C)?;
        let mut flags = 0;
        // SAFETY: the handle is alive; writes one integer to the address given.
        check_on(self.device.ordinal(), C, unsafe { sys::cudaStreamGetFlags(self.raw, &raw mut flags) })?;
        Ok(flags)
    }

    /// Whether it takes turns with the legacy default stream of its device, or is that one. True where CUDA does not say.
    #[cfg(feature = "nvshmem")]
    pub(crate) fn is_in_legacy_order(&self) -> bool {
        self.is_legacy() || !self.flags().is_ok_and(|flags| flags & sys::cudaStreamNonBlocking != 0)
    }
}

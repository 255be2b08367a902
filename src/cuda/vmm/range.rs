//! Addresses, with no memory.

use std::ffi::c_void;

use super::functions;
use super::properties::MemoryProperties;
use crate::cuda::devices::check::check_memory;
use crate::cuda::devices::current::any_ready;
use crate::cuda::devices::device::Device;
use crate::cuda::devices::thread::is_off_limits;
use crate::error::{Error, Result};

/// A range of addresses that nothing else of this process gets, with no memory as yet.
#[derive(Debug)]
pub struct AddressRange {
    base: u64,
    bytes: usize,
}

impl AddressRange {
    /// Wraps `cuMemAddressReserve`: at least `bytes` addresses, rounded up as memory is.
    ///
    /// ```
    /// # use gpucomm::cuda::vmm::AddressRange;
    /// # fn main() -> gpucomm::Result<()> {
    /// // Addresses cost no memory.
    /// let range = AddressRange::reserve(1 << 40)?;
    /// assert!(range.bytes() >= 1 << 40);
    /// assert!(!range.as_raw().is_null());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported) where the driver cannot do this; [`OutOfMemory`](Error::OutOfMemory) where there are not so
    /// many addresses; [`InvalidArgument`](Error::InvalidArgument) where there is no such size; what CUDA says.
    #[doc(alias = "cuMemAddressReserve")]
    pub fn reserve(bytes: usize) -> Result<Self> {
        Self::reserve_aligned(bytes, 0)
    }

    /// Wraps `cuMemAddressReserve`: as [`AddressRange::reserve`], and the first address is a multiple of `alignment`; 0: of the
    /// granularity.
    ///
    /// ```
    /// # use gpucomm::cuda::vmm::AddressRange;
    /// # fn main() -> gpucomm::Result<()> {
    /// let range = AddressRange::reserve_aligned(64 << 20, 1 << 30)?;
    /// assert_eq!(range.as_raw().addr() % (1 << 30), 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`InvalidArgument`](Error::InvalidArgument) for an alignment that is no power of two.
    #[doc(alias = "cuMemAddressReserve")]
    pub fn reserve_aligned(bytes: usize, alignment: usize) -> Result<Self> {
        const FUNCTION: &str = "cuMemAddressReserve";
        if alignment != 0 && !alignment.is_power_of_two() {
            return Err(Error::argument(FUNCTION, "alignment", "0 or a power of two", alignment));
        }
        any_ready(FUNCTION)?;
        let bytes = MemoryProperties::new(Device::current()?).round_up(bytes)?;
        let mut base = 0;
        // SAFETY: writes an address to the place given.
        let result = unsafe { functions::reserve(FUNCTION)?(&raw mut base, bytes, alignment, 0, 0) };
        check_memory(FUNCTION, functions::code(result), bytes, || String::from("the addresses of this process"))?;
        Ok(Self { base, bytes })
    }

    /// How many addresses.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first of them.
    pub fn as_raw(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.base as usize)
    }

    /// The first of them, as the driver has it.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }
}

impl AddressRange {
    /// The addresses; what is left here is of none.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self { base: 0, bytes: 0 })
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        // Within a host function CUDA must not be called.
        if self.bytes > 0
            && !is_off_limits()
            && let Ok(free) = functions::free("cuMemAddressFree")
        {
            // SAFETY: the whole of a reservation, once. Who has mapped something there has unmapped it, or the driver refuses.
            let _ = unsafe { free(self.base, self.bytes) };
        }
    }
}

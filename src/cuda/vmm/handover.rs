//! Physical memory that others have made, and that others are given.

use std::sync::Arc;

use super::functions;
use super::physical::PhysicalMemory;
use super::share::{held_by, is_of_size};
use crate::cuda::devices::device::Device;
use crate::error::{Error, Result};

impl PhysicalMemory {
    /// The `bytes` bytes of `device` that somebody else has made (`cuMemCreate`), by their `CUmemGenericAllocationHandle`. They belong to this
    /// crate from now on, which releases them. By which handles they can be shared the driver tells.
    ///
    /// ```
    /// # use gpucomm::cuda::vmm::{Access, PhysicalMemory};
    /// # use gpucomm::{Device, DeviceBuffer, Result};
    /// # fn main() -> Result<()> {
    /// # let device = Device::new(0)?;
    /// fn take(device: Device, theirs: u64, bytes: usize) -> Result<DeviceBuffer<f32>> {
    ///     // SAFETY: their library has made it, and neither uses nor releases it any more.
    ///     let memory = unsafe { PhysicalMemory::from_raw(device, theirs, bytes)? };
    ///     Ok(memory.map(&[Access::read_write(device)])?.into_buffer())
    /// }
    /// # let theirs = PhysicalMemory::new(device, 2 << 20)?;
    /// # let bytes = theirs.bytes();
    /// # assert_eq!(take(device, theirs.into_raw()?, bytes)?.len() * 4, bytes);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// - `raw` is the handle of physical memory, and nobody else releases it.
    /// - Uses of the memory where others have mapped it, or import it, are ordered by the caller, as with [`PhysicalMemory::import_fd`].
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for memory of another device, or of another size;
    /// [`Unsupported`](Error::Unsupported) where the driver cannot do this; what CUDA says. It still belongs to the caller then.
    pub unsafe fn from_raw(device: Device, raw: u64, bytes: usize) -> Result<Self> {
        const OPERATION: &str = "PhysicalMemory::from_raw";
        functions::ready(OPERATION, device)?;
        let properties = held_by(OPERATION, device, raw)?;
        is_of_size(OPERATION, raw, bytes)?;
        Ok(Self::of(raw, bytes, properties))
    }

    /// The `CUmemGenericAllocationHandle`, which the caller releases; [`PhysicalMemory::from_raw`] is the other way round, and
    /// [`PhysicalMemory::as_raw`] lends it.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::vmm::PhysicalMemory;
    /// # fn main() -> gpucomm::Result<()> {
    /// let device = Device::new(0)?;
    /// let memory = PhysicalMemory::new(device, 2 << 20)?;
    /// let (bytes, raw) = (memory.bytes(), memory.into_raw()?);
    /// // Another library has it, and gives it back.
    /// // SAFETY: it is not released, and nobody else uses it.
    /// let memory = unsafe { PhysicalMemory::from_raw(device, raw, bytes)? };
    /// assert_eq!(memory.as_raw(), raw);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidUsage`](Error::InvalidUsage) where an [alias](PhysicalMemory::alias) of it is there, or was mapped: they share the handle.
    /// This one is gone then.
    pub fn into_raw(self) -> Result<u64> {
        match Arc::try_unwrap(self.0) {
            Ok(physical) => Ok(physical.into_raw()),
            Err(_) => Err(Error::InvalidUsage {
                operation: "PhysicalMemory::into_raw",
                reason: "expected memory that nothing else has, got one that has an alias".into(),
            }),
        }
    }
}

//! What physical memory is to be like.

use std::ops::BitOr;

use super::functions;
use super::place;
use crate::cuda::devices::check::check;
use crate::cuda::devices::device::Device;
use crate::error::{Error, Result};
use crate::sys;

/// By which handles memory can be shared with other processes: a set of `CUmemAllocationHandleType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HandleTypes(pub(super) u32);

impl HandleTypes {
    /// By none: the memory stays within the process.
    pub const NONE: Self = Self(0);
    /// By file descriptors, within a host.
    pub const FD: Self = Self(1);
    /// By fabric handles, between the hosts of an NVLink fabric. Needs a fabric that the process may use (an IMEX channel).
    pub const FABRIC: Self = Self(8);

    /// As C has them.
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `other` are among these.
    ///
    /// ```
    /// use gpucomm::cuda::vmm::HandleTypes;
    ///
    /// let both = HandleTypes::FD | HandleTypes::FABRIC;
    /// assert!(both.contains(HandleTypes::FD) && !HandleTypes::FD.contains(both));
    /// assert!(HandleTypes::FD.contains(HandleTypes::NONE));
    /// ```
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for HandleTypes {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::fmt::Display for HandleTypes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match (self.contains(Self::FD), self.contains(Self::FABRIC)) {
            (true, true) => "file descriptors and fabric handles",
            (true, false) => "file descriptors",
            (false, true) => "fabric handles",
            (false, false) => "no handles",
        })
    }
}

/// In which steps there is memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Granularity {
    /// Sizes and addresses are multiples of this.
    pub minimum: usize,
    /// With multiples of this the device is fastest.
    pub recommended: usize,
}

/// What physical memory is to be like: a `CUmemAllocationProp` for pinned memory of a device.
///
/// ```
/// # use gpucomm::Device;
/// # use gpucomm::cuda::vmm::{HandleTypes, PhysicalMemory, MemoryProperties};
/// # use gpucomm::cuda::DeviceAttribute;
/// # fn main() -> gpucomm::Result<()> {
/// let device = Device::new(0)?;
/// let rdma = device.attribute(DeviceAttribute::GPU_DIRECT_RDMA_SUPPORTED)? == 1;
/// let properties = MemoryProperties::new(device).with_handle_types(HandleTypes::FD).with_gpu_direct_rdma(rdma);
/// let memory = PhysicalMemory::new_with(&properties, 1 << 20)?;
/// assert_eq!((memory.properties().device(), memory.properties().handle_types()), (device, HandleTypes::FD));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryProperties {
    device: Device,
    handle_types: HandleTypes,
    gpu_direct_rdma: bool,
}

impl MemoryProperties {
    /// Memory of `device` that stays within the process.
    pub fn new(device: Device) -> Self {
        Self { device, handle_types: HandleTypes::NONE, gpu_direct_rdma: false }
    }

    /// By which handles it can be shared.
    #[must_use]
    pub fn with_handle_types(mut self, handle_types: HandleTypes) -> Self {
        self.handle_types = handle_types;
        self
    }

    /// Whether network cards are to reach it.
    #[must_use]
    pub fn with_gpu_direct_rdma(mut self, wanted: bool) -> Self {
        self.gpu_direct_rdma = wanted;
        self
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// By which handles it can be shared.
    pub fn handle_types(&self) -> HandleTypes {
        self.handle_types
    }

    /// Wraps `cuMemGetAllocationGranularity`: in which steps there is such memory.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::vmm::MemoryProperties;
    /// # fn main() -> gpucomm::Result<()> {
    /// let steps = MemoryProperties::new(Device::new(0)?).granularity()?;
    /// assert_eq!(steps.recommended % steps.minimum, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported) where driver or device cannot do this; what CUDA says.
    #[doc(alias = "cuMemGetAllocationGranularity")]
    pub fn granularity(&self) -> Result<Granularity> {
        const FUNCTION: &str = "cuMemGetAllocationGranularity";
        functions::ready(FUNCTION, self.device)?;
        let (function, properties) = (functions::granularity(FUNCTION)?, self.raw());
        let ask = |which| {
            let mut bytes = 0;
            // SAFETY: writes one number to the place given, and reads the properties.
            let result = unsafe { function(&raw mut bytes, &raw const properties, which) };
            check(FUNCTION, functions::code(result)).map(|()| bytes)
        };
        Ok(Granularity {
            minimum: ask(sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM)?,
            recommended: ask(sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)?,
        })
    }

    /// The least size for `bytes` bytes, in recommended steps.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::vmm::MemoryProperties;
    /// # fn main() -> gpucomm::Result<()> {
    /// let properties = MemoryProperties::new(Device::new(0)?);
    /// let step = properties.granularity()?.recommended;
    /// assert_eq!(properties.round_up(step + 1)?, 2 * step);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`MemoryProperties::granularity`]; [`InvalidArgument`](Error::InvalidArgument) where there is no such size.
    pub fn round_up(&self, bytes: usize) -> Result<usize> {
        let step = self.granularity()?.recommended;
        bytes.max(1).checked_next_multiple_of(step).ok_or_else(|| {
            Error::argument(
                "MemoryProperties::round_up",
                "bytes",
                format_args!("at most {}", usize::MAX / step * step),
                bytes,
            )
        })
    }

    /// As C has it.
    pub(super) fn raw(&self) -> sys::CUmemAllocationProp_v1 {
        // SAFETY: integers and a pointer, of which zero is a value.
        let mut raw: sys::CUmemAllocationProp_v1 = unsafe { std::mem::zeroed() };
        raw.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        raw.requestedHandleTypes = sys::CUmemAllocationHandleType(self.handle_types.0);
        raw.location = place::on(self.device);
        raw.allocFlags.gpuDirectRDMACapable = u8::from(self.gpu_direct_rdma);
        raw
    }
}

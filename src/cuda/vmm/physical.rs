//! Physical memory: bytes of a device, at no address.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::functions;
use super::properties::{HandleTypes, MemoryProperties};
use crate::codes::CudaCode;
use crate::cuda::devices::check::{check, check_memory};
use crate::cuda::devices::device::Device;
use crate::cuda::devices::thread::is_off_limits;
use crate::cuda::memory::allocated::known::Known;
use crate::error::{Error, Result};

/// Bytes of a device, at no address: [mapped](PhysicalMemory::map), they can be used.
///
/// They are released when this and all that maps them is gone, and the device is done with them.
///
/// ```
/// # use gpucomm::Device;
/// # use gpucomm::cuda::vmm::PhysicalMemory;
/// # fn main() -> gpucomm::Result<()> {
/// let device = Device::new(0)?;
/// let memory = PhysicalMemory::new(device, 1000)?;
/// assert_eq!(memory.device(), device);
/// // Whole steps, of some megabytes on most devices.
/// assert_eq!(memory.bytes(), memory.properties().round_up(1000)?);
/// # Ok(())
/// # }
/// ```
pub struct PhysicalMemory(pub(super) Arc<Physical>);

/// Such memory, once for all who have it.
#[derive(Debug)]
pub(crate) struct Physical {
    raw: u64,
    /// Whether it is released with this.
    ours: bool,
    pub(super) bytes: usize,
    pub(super) properties: MemoryProperties,
    /// What is kept of it, in common with what is mapped beside it. Set where it is mapped first.
    known: OnceLock<Arc<Known>>,
    /// Whether it was mapped, or is to be mapped, more than once.
    aliased: AtomicBool,
    /// How many multicast objects it is bound to.
    bound: AtomicUsize,
}

impl PhysicalMemory {
    /// Wraps `cuMemCreate`: at least `bytes` bytes of `device`, in whole
    /// [steps](MemoryProperties::round_up) and at least one, which stay within the process; see
    /// [`PhysicalMemory::new_with`].
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "cuMemCreate")]
    pub fn new(device: Device, bytes: usize) -> Result<Self> {
        Self::new_with(&MemoryProperties::new(device), bytes)
    }

    /// Wraps `cuMemCreate`: at least `bytes` bytes, [rounded up](MemoryProperties::round_up), with unspecified values.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::vmm::{HandleTypes, PhysicalMemory, MemoryProperties};
    /// # fn main() -> gpucomm::Result<()> {
    /// let properties = MemoryProperties::new(Device::new(0)?).with_handle_types(HandleTypes::FD);
    /// let memory = PhysicalMemory::new_with(&properties, 2 << 20)?;
    /// assert!(memory.properties().handle_types().contains(HandleTypes::FD));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported) where driver or device cannot do this, or where the machine has no fabric for this process;
    /// [`OutOfMemory`](Error::OutOfMemory); [`InvalidArgument`](Error::InvalidArgument) where there is no such size; what CUDA says.
    #[doc(alias = "cuMemCreate")]
    pub fn new_with(properties: &MemoryProperties, bytes: usize) -> Result<Self> {
        const FUNCTION: &str = "cuMemCreate";
        let device = properties.device();
        functions::ready(FUNCTION, device)?;
        let (create, bytes) = (functions::create(FUNCTION)?, properties.round_up(bytes)?);
        let (mut raw, wanted) = (0, properties.raw());
        // SAFETY: writes a handle to the place given, and reads the properties.
        let result = unsafe { create(&raw mut raw, bytes, &raw const wanted, 0) };
        let failed = check_memory(FUNCTION, functions::code(result), bytes, || device.to_string());
        failed.map_err(|error| no_fabric(error, FUNCTION, properties.handle_types()))?;
        Ok(Self::of(raw, bytes, *properties))
    }

    /// What a handle stands for, which nobody else releases.
    pub(super) fn of(raw: u64, bytes: usize, properties: MemoryProperties) -> Self {
        let (known, aliased, bound) = (OnceLock::new(), AtomicBool::new(false), AtomicUsize::new(0));
        Self(Arc::new(Physical { raw, ours: true, bytes, properties, known, aliased, bound }))
    }

    /// It as those have it who keep it.
    pub(crate) fn inner(&self) -> &Arc<Physical> {
        &self.0
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// The device that holds them.
    pub fn device(&self) -> Device {
        self.0.properties.device()
    }

    /// What it was made like. Memory that was imported has no handles to share it by.
    pub fn properties(&self) -> &MemoryProperties {
        &self.0.properties
    }

    /// The `CUmemGenericAllocationHandle`, for calls of other libraries; it is released with this memory.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::vmm::PhysicalMemory;
    /// # fn main() -> gpucomm::Result<()> {
    /// let memory = PhysicalMemory::new(Device::new(0)?, 2 << 20)?;
    /// println!("{:#x}, for calls of the driver", memory.as_raw());
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_raw(&self) -> u64 {
        self.0.raw
    }

    /// The same memory once more, to be mapped at other addresses too.
    ///
    /// ```
    /// # use gpucomm::{Device, Stream};
    /// # use gpucomm::cuda::vmm::{Access, PhysicalMemory};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let device = stream.device();
    /// let memory = PhysicalMemory::new(device, 2 << 20)?;
    /// // SAFETY: this thread alone uses both, one after the other.
    /// let again = unsafe { memory.alias() };
    /// let mut x = memory.map(&[Access::read_write(device)])?.into_buffer::<f32>();
    /// let y = again.map(&[Access::read(device)])?.into_buffer::<f32>();
    /// x.fill(&stream, 2.0)?;
    /// assert_eq!(y.slice(..2).to_vec(&stream)?, [2.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// What is written through one of its buffers, and read or written through another, is not asked for by two threads at the same time,
    /// nor in one call, nor in one group, as with [`DeviceBuffer::alias`](crate::DeviceBuffer::alias). What a failed operation has left
    /// is overwritten where *all* of the memory is, which a buffer does not show that is shorter.
    #[must_use]
    pub unsafe fn alias(&self) -> Self {
        self.0.aliased.store(true, Ordering::Relaxed);
        if let Some(known) = self.0.known.get() {
            known.set_aliased();
        }
        Self(Arc::clone(&self.0))
    }
}

impl std::fmt::Debug for PhysicalMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PhysicalMemory")
            .field("bytes", &self.bytes())
            .field("properties", self.properties())
            .finish_non_exhaustive()
    }
}

impl Physical {
    pub(crate) fn raw(&self) -> u64 {
        self.raw
    }

    /// The handle, which somebody else releases.
    pub(super) fn into_raw(mut self) -> u64 {
        self.ours = false;
        self.raw
    }

    /// It is bound to a multicast object, and so written to in another way than by its mappings. Gives back what is kept of it.
    pub(crate) fn bind(&self, operation: &'static str) -> Result<Arc<Known>> {
        let known = self.known(operation, self.known.get())?;
        known.set_aliased();
        self.bound.fetch_add(1, Ordering::Relaxed);
        Ok(known)
    }

    /// One binding of it is gone.
    pub(crate) fn unbind(&self) {
        self.bound.fetch_sub(1, Ordering::Release);
    }

    /// Whether it is bound: then its mappings stay, as B200s do not unbind what was unmapped before.
    pub(super) fn is_bound(&self) -> bool {
        self.bound.load(Ordering::Acquire) > 0
    }

    /// What is kept of it: `beside`, where it is mapped behind other memory.
    pub(super) fn known(&self, operation: &'static str, beside: Option<&Arc<Known>>) -> Result<Arc<Known>> {
        let known = self.known.get_or_init(|| {
            let known = beside.map_or_else(Known::of_mapped, Arc::clone);
            known.add(self.bytes);
            known
        });
        match beside {
            Some(beside) if !Arc::ptr_eq(beside, known) => Err(Error::InvalidUsage {
                operation,
                reason: "memory that is mapped elsewhere too cannot be mapped behind other memory".into(),
            }),
            _ => {
                if self.aliased.load(Ordering::Relaxed) {
                    known.set_aliased();
                }
                Ok(Arc::clone(known))
            }
        }
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        // Within a host function CUDA must not be called.
        if self.ours
            && !is_off_limits()
            && let Ok(release) = functions::release("cuMemRelease")
        {
            // SAFETY: a handle that was given to us, once; what is still mapped of it stays.
            let result = unsafe { release(self.raw) };
            let _ = check("cuMemRelease", functions::code(result));
        }
    }
}

/// What it means that memory with these handles is not permitted.
pub(super) fn no_fabric(error: Error, operation: &'static str, handles: HandleTypes) -> Error {
    let refused = matches!(&error, Error::Cuda { code: CudaCode(800 | 801), .. });
    if refused && handles.contains(HandleTypes::FABRIC) {
        let needs = format!("a fabric that this process may use, for fabric handles: an IMEX channel ({error})");
        return Error::Unsupported { operation, needs };
    }
    error
}

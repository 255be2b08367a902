//! Physical memory: bytes of a device, at no address.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::functions;
use super::properties::{HandleTypes, Properties};
use crate::cuda::devices::check::{check, check_memory};
use crate::cuda::devices::device::{Device, in_host_function};
use crate::cuda::memory::allocation::Known;
use crate::error::{Error, Result};

/// Bytes of a device, at no address: [mapped](PhysicalMemory::map), they can be used.
///
/// They are released when this and all that maps them is gone, and the device is done with them.
#[derive(Debug)]
pub struct PhysicalMemory(pub(super) Arc<Physical>);

/// Such memory, once for all who have it.
#[derive(Debug)]
pub(super) struct Physical {
    raw: u64,
    pub(super) bytes: usize,
    pub(super) properties: Properties,
    /// What is kept of it, in common with what is mapped beside it. Set where it is mapped first.
    known: OnceLock<Arc<Known>>,
    /// Whether it was mapped, or is to be mapped, more than once.
    aliased: AtomicBool,
}

impl PhysicalMemory {
    /// Wraps `cuMemCreate`: at least `bytes` bytes of `device`, in whole [steps](Properties::round_up) and at least one, which stay within the process; see [`PhysicalMemory::with`].
    ///
    /// # Errors
    /// As there.
    pub fn new(device: Device, bytes: usize) -> Result<Self> {
        Self::with(&Properties::new(device), bytes)
    }

    /// Wraps `cuMemCreate`: at least `bytes` bytes, [rounded up](Properties::round_up), with unspecified values.
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported) where driver or device cannot do this, or where the machine has no fabric for this process;
    /// [`OutOfMemory`](Error::OutOfMemory); what CUDA says.
    pub fn with(properties: &Properties, bytes: usize) -> Result<Self> {
        const FUNCTION: &str = "cuMemCreate";
        let device = properties.device();
        functions::ready(FUNCTION, device)?;
        let (create, bytes) = (functions::create(FUNCTION)?, properties.round_up(bytes)?);
        let (mut raw, wanted) = (0, properties.raw());
        // SAFETY: writes a handle to the place given, and reads the properties.
        let result = unsafe { create(&raw mut raw, bytes, &raw const wanted, 0) };
        let failed = check_memory(FUNCTION, functions::code(result), bytes, || device.to_string());
        failed.map_err(|error| no_fabric(error, FUNCTION, properties.handles()))?;
        Ok(Self::of(raw, bytes, *properties))
    }

    /// What a handle stands for, which nobody else releases.
    pub(super) fn of(raw: u64, bytes: usize, properties: Properties) -> Self {
        Self(Arc::new(Physical { raw, bytes, properties, known: OnceLock::new(), aliased: AtomicBool::new(false) }))
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
    pub fn properties(&self) -> &Properties {
        &self.0.properties
    }

    /// The `CUmemGenericAllocationHandle`, for calls of other libraries; it is released with this memory.
    pub fn as_raw(&self) -> u64 {
        self.0.raw
    }

    /// The same memory once more, to be mapped at other addresses too.
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

impl Physical {
    pub(super) fn raw(&self) -> u64 {
        self.raw
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
        if !in_host_function()
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
    let refused = matches!(&error, Error::Cuda { code: 800 | 801, .. });
    if refused && handles.contains(HandleTypes::FABRIC) {
        let needs = format!("a fabric that this process may use, for fabric handles: an IMEX channel ({error})");
        return Error::Unsupported { operation, needs };
    }
    error
}

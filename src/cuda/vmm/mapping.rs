//! Physical memory, mapped at addresses for some devices.

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

use super::access;
use super::access::Access;
use super::functions;
use super::physical::{Physical, PhysicalMemory};
use super::range::AddressRange;
use crate::cuda::devices::check::check_on;
use crate::cuda::devices::device::Device;
use crate::cuda::devices::owners;
use crate::cuda::devices::thread::is_off_limits;
use crate::cuda::memory::allocated::allocation::Shown;
use crate::cuda::memory::allocated::known::Known;
use crate::error::{Error, Result};
use crate::lock::{Mutex, MutexGuard};

/// Physical memory, mapped at the first addresses of a range for some devices. As a [buffer](Mapping::into_buffer) it can be used.
///
/// ```
/// # use gpucomm::Device;
/// # use gpucomm::cuda::vmm::{Access, AddressRange, PhysicalMemory};
/// # fn main() -> gpucomm::Result<()> {
/// let device = Device::new(0)?;
/// let range = AddressRange::reserve(64 << 20)?;
/// let mut mapping = range.map(PhysicalMemory::new(device, 2 << 20)?, &[Access::read_write(device)])?;
/// mapping.push(PhysicalMemory::new(device, 4 << 20)?)?;
/// assert_eq!((mapping.bytes(), mapping.capacity()), (6 << 20, 64 << 20));
/// assert_eq!((mapping.device(), mapping.access()), (device, &[Access::read_write(device)][..]));
/// # Ok(())
/// # }
/// ```
pub struct Mapping(pub(super) Arc<Span>);

/// What lies at the first addresses of a range, without a gap.
#[derive(Debug)]
pub(super) struct Span {
    device: Device,
    access: Box<[Access]>,
    known: Arc<Known>,
    mapped: Mutex<Mapped>,
    /// Given back when nothing is mapped there any more.
    range: AddressRange,
}

#[derive(Debug)]
struct Mapped {
    memory: Vec<Arc<Physical>>,
    /// The sum of their bytes.
    bytes: usize,
}

impl AddressRange {
    /// Wraps `cuMemMap` and `cuMemSetAccess`: maps `memory` at the first of these addresses, for the devices of `access`.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::vmm::{Access, AddressRange, PhysicalMemory};
    /// # fn main() -> gpucomm::Result<()> {
    /// let device = Device::new(0)?;
    /// let range = AddressRange::reserve(64 << 20)?;
    /// let first = range.as_raw();
    /// let mapping = range.map(PhysicalMemory::new(device, 2 << 20)?, &[Access::read_write(device)])?;
    /// assert_eq!(mapping.as_raw(), first);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for more memory than addresses, no device, one that is given twice, or one that cannot
    /// reach the memory; what CUDA says. Memory and addresses are given back then.
    #[doc(alias("cuMemMap", "cuMemSetAccess"))]
    pub fn map(self, memory: PhysicalMemory, access: &[Access]) -> Result<Mapping> {
        Mapping::new(self, memory, access)
    }
}

impl PhysicalMemory {
    /// Wraps `cuMemAddressReserve`, `cuMemMap` and `cuMemSetAccess`: maps it at addresses for just so many bytes; see
    /// [`AddressRange::map`].
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::vmm::{Access, PhysicalMemory};
    /// # fn main() -> gpucomm::Result<()> {
    /// let device = Device::new(0)?;
    /// let mapping = PhysicalMemory::new(device, 2 << 20)?.map(&[Access::read_write(device)])?;
    /// assert_eq!(mapping.bytes(), mapping.capacity());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and as [`AddressRange::reserve`].
    #[doc(alias("cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"))]
    pub fn map(self, access: &[Access]) -> Result<Mapping> {
        AddressRange::reserve(self.bytes())?.map(self, access)
    }
}

impl Mapping {
    fn new(range: AddressRange, memory: PhysicalMemory, access: &[Access]) -> Result<Self> {
        const OPERATION: &str = "AddressRange::map";
        let device = memory.device();
        functions::ready(OPERATION, device)?;
        access::check(OPERATION, device, access)?;
        // Who will unmap it where the device is not done with it when the last buffer goes.
        owners::start(OPERATION)?;
        let known = memory.0.known(OPERATION, None)?;
        let mapped = Mutex::new(Mapped { memory: Vec::new(), bytes: 0 });
        let span = Span { device, access: access.into(), known, mapped, range };
        span.push(OPERATION, memory)?;
        Ok(Self(Arc::new(span)))
    }

    /// How many bytes are mapped.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// How many can be mapped at its addresses.
    pub fn capacity(&self) -> usize {
        self.0.range.bytes()
    }

    /// The device that holds the memory.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// What devices may do with it.
    pub fn access(&self) -> &[Access] {
        &self.0.access
    }

    /// The first address, for calls of other libraries.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::vmm::{Access, PhysicalMemory};
    /// # fn main() -> gpucomm::Result<()> {
    /// let device = Device::new(0)?;
    /// let mapping = PhysicalMemory::new(device, 2 << 20)?.map(&[Access::read_write(device)])?;
    /// let first = mapping.as_raw();
    /// // The buffer begins where the mapping did.
    /// assert_eq!(mapping.into_buffer::<f32>().as_raw(), first);
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_raw(&self) -> *mut c_void {
        self.0.range.as_raw()
    }

    /// Wraps `cuMemMap` and `cuMemSetAccess`: maps more memory behind what there is, for the same devices.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::vmm::{Access, AddressRange, PhysicalMemory};
    /// # fn main() -> gpucomm::Result<()> {
    /// let device = Device::new(0)?;
    /// let range = AddressRange::reserve(4 << 20)?;
    /// let mut mapping = range.map(PhysicalMemory::new(device, 2 << 20)?, &[Access::read_write(device)])?;
    /// mapping.push(PhysicalMemory::new(device, 2 << 20)?)?;
    /// // There are no addresses left.
    /// assert!(mapping.push(PhysicalMemory::new(device, 2 << 20)?).is_err());
    /// assert_eq!(mapping.bytes(), 4 << 20);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for memory of another device, or more than the addresses are for;
    /// [`InvalidUsage`](Error::InvalidUsage) for memory that is mapped elsewhere too; what CUDA says. The mapping stays as it was then.
    #[doc(alias("cuMemMap", "cuMemSetAccess"))]
    pub fn push(&mut self, memory: PhysicalMemory) -> Result<()> {
        self.0.push("Mapping::push", memory)
    }
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mapping")
            .field("device", &self.device())
            .field("address", &self.as_raw())
            .field("bytes", &self.bytes())
            .field("capacity", &self.capacity())
            .field("access", &self.access())
            .finish()
    }
}

impl Span {
    pub(super) fn bytes(&self) -> usize {
        self.mapped().bytes
    }

    pub(super) fn capacity(&self) -> usize {
        self.range.bytes()
    }

    pub(super) fn device(&self) -> Device {
        self.device
    }

    pub(super) fn access(&self) -> &[Access] {
        &self.access
    }

    pub(super) fn known(&self) -> &Arc<Known> {
        &self.known
    }

    pub(super) fn address(&self) -> *mut c_void {
        self.range.as_raw()
    }

    fn mapped(&self) -> MutexGuard<'_, Mapped> {
        self.mapped.lock()
    }

    /// Maps `memory` behind what there is.
    pub(super) fn push(&self, operation: &'static str, memory: PhysicalMemory) -> Result<()> {
        functions::ready(operation, self.device)?;
        let bytes = memory.bytes();
        if memory.device() != self.device {
            let expected = format!("memory of {}", self.device);
            return Err(Error::argument(operation, "memory", expected, format_args!("memory of {}", memory.device())));
        }
        let mut mapped = self.mapped();
        let room = self.range.bytes() - mapped.bytes;
        if bytes > room {
            let expected =
                format!("at most {room} bytes: addresses for {} have {} mapped", self.range.bytes(), mapped.bytes);
            return Err(Error::argument(operation, "memory", expected, format_args!("{bytes} bytes")));
        }
        memory.0.known(operation, Some(&self.known))?;
        self.map(self.range.base() + mapped.bytes as u64, &memory.0)?;
        mapped.bytes += bytes;
        mapped.memory.push(memory.0);
        Ok(())
    }

    fn map(&self, address: u64, memory: &Physical) -> Result<()> {
        let (map, set_access) = (functions::map("cuMemMap")?, functions::set_access("cuMemSetAccess")?);
        let ordinal = self.device.ordinal();
        let access: Vec<_> = self.access.iter().map(Access::descriptor).collect();
        // SAFETY: addresses of a reservation at which nothing is mapped, and a live handle of so many bytes.
        let result = unsafe { map(address, memory.bytes, 0, memory.raw(), 0) };
        check_on(ordinal, "cuMemMap", functions::code(result))?;
        // SAFETY: what was mapped just now, and so many descriptions to read.
        let result = unsafe { set_access(address, memory.bytes, access.as_ptr(), access.len()) };
        check_on(ordinal, "cuMemSetAccess", functions::code(result)).inspect_err(|_| unmap(address, memory.bytes))
    }
}

/// Takes away what was mapped in one call, and nobody uses.
fn unmap(address: u64, bytes: usize) {
    if let Ok(unmap) = functions::unmap("cuMemUnmap") {
        // SAFETY: the caller has mapped so many bytes there, and no device uses them.
        let _ = unsafe { unmap(address, bytes) };
    }
}

impl Shown for Span {
    fn as_any(&self) -> &dyn Any {
        self
    }

    #[cfg(any(feature = "nccl", feature = "nvshmem"))]
    fn is_idle(&self) -> Result<bool> {
        self.known.is_idle()
    }

    fn let_go(self: Arc<Self>) {
        // The last allocation that shows it: uses by way of any of them stand in what is known.
        if let Some(span) = Arc::into_inner(self) {
            let (device, known) = (span.device, Arc::clone(&span.known));
            owners::drop_when(Box::new(span), device, Box::new(move || known.is_idle()));
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.mapped.get_mut().memory);
        if is_off_limits() {
            // CUDA must not be called here: the memory is lost, and its addresses too.
            std::mem::forget(memory);
            return;
        }
        let rest = Rest { memory, range: self.range.take() };
        if rest.memory.iter().any(|memory| memory.is_bound()) {
            let memory = rest.memory.clone();
            let done = move || Ok(!memory.iter().any(|memory| memory.is_bound()));
            owners::drop_when(Box::new(rest), self.device, Box::new(done));
        }
    }
}

/// What is left of a span that nobody shows any more: it stays as long as it is bound to a multicast object.
struct Rest {
    memory: Vec<Arc<Physical>>,
    range: AddressRange,
}

impl Drop for Rest {
    fn drop(&mut self) {
        let mut address = self.range.base();
        for memory in &self.memory {
            unmap(address, memory.bytes);
            address += memory.bytes as u64;
        }
    }
}

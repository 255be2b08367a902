//! Memory that several processes have: exported by one, imported by others.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::functions;
use super::physical::{PhysicalMemory, no_fabric};
use super::place;
use super::properties::{HandleTypes, MemoryProperties};
use super::range::AddressRange;
use crate::cuda::devices::check::{check, check_on};
use crate::cuda::devices::device::Device;
use crate::cuda::devices::driver::retained;
use crate::error::{Error, Result};
use crate::exchange::FdSocket;
use crate::sys;

/// By which processes of other hosts of an NVLink fabric import memory: a `CUmemFabricHandle`. Sent as its bytes, by any means.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FabricHandle(pub [u8; 64]);

impl std::fmt::Debug for FabricHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FabricHandle(")?;
        self.0.iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…)")
    }
}

impl PhysicalMemory {
    /// Wraps `cuMemExportToShareableHandle`: a descriptor by which another process of this host [imports](PhysicalMemory::import_fd) the
    /// memory. The memory lives as long as anybody has it, or a descriptor that is open.
    ///
    /// What other processes do with it is not seen here: they have promised, by the import, that it is ordered.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::vmm::{HandleTypes, PhysicalMemory, MemoryProperties};
    /// # fn main() -> gpucomm::Result<()> {
    /// let properties = MemoryProperties::new(Device::new(0)?).with_handle_types(HandleTypes::FD);
    /// let memory = PhysicalMemory::new_with(&properties, 2 << 20)?;
    /// let fd: std::os::fd::OwnedFd = memory.export_fd()?;
    /// # drop(fd);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for memory that was not [made](MemoryProperties::handle_types) for
    /// [`HandleTypes::FD`]; what CUDA says.
    #[doc(alias = "cuMemExportToShareableHandle")]
    pub fn export_fd(&self) -> Result<OwnedFd> {
        let mut fd: c_int = -1;
        // SAFETY: a handle of this kind is an integer, for which there is a place.
        unsafe { self.export("PhysicalMemory::export_fd", HandleTypes::FD, (&raw mut fd).cast()) }?;
        // SAFETY: the driver has given us this descriptor, and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Wraps `cuMemExportToShareableHandle`: a handle by which processes on other hosts of the fabric
    /// [import](PhysicalMemory::import_fabric) the memory.
    ///
    /// ```
    /// # use gpucomm::{Device, Error};
    /// # use gpucomm::cuda::vmm::{FabricHandle, HandleTypes, PhysicalMemory, MemoryProperties};
    /// # fn main() -> gpucomm::Result<()> {
    /// fn export(device: Device) -> gpucomm::Result<Option<[u8; 64]>> {
    ///     let properties = MemoryProperties::new(device).with_handle_types(HandleTypes::FABRIC);
    ///     let memory = match PhysicalMemory::new_with(&properties, 2 << 20) {
    ///         // There is no fabric here.
    ///         Err(Error::Unsupported { .. }) => return Ok(None),
    ///         memory => memory?,
    ///     };
    ///     // To be sent by any means.
    ///     let FabricHandle(bytes) = memory.export_fabric()?;
    ///     Ok(Some(bytes))
    /// }
    /// # export(Device::new(0)?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`PhysicalMemory::export_fd`], for [`HandleTypes::FABRIC`].
    #[doc(alias = "cuMemExportToShareableHandle")]
    pub fn export_fabric(&self) -> Result<FabricHandle> {
        let mut handle = FabricHandle([0; 64]);
        // SAFETY: a handle of this kind is 64 bytes, for which there is a place.
        unsafe { self.export("PhysicalMemory::export_fabric", HandleTypes::FABRIC, handle.0.as_mut_ptr().cast()) }?;
        Ok(handle)
    }

    /// # Safety
    /// There is a place for a handle of this kind at `place`.
    unsafe fn export(&self, operation: &'static str, kind: HandleTypes, place: *mut c_void) -> Result<()> {
        const FUNCTION: &str = "cuMemExportToShareableHandle";
        let has = self.properties().handle_types();
        if !has.contains(kind) {
            let expected = format!("memory that was made for {kind}");
            return Err(Error::argument(operation, "memory", expected, format_args!("memory that has {has}")));
        }
        functions::ready(operation, self.device())?;
        let kind = sys::CUmemAllocationHandleType(kind.0);
        // SAFETY: the handle is live, and there is a place, as the caller promises.
        let result = unsafe { functions::export(operation)?(place, self.as_raw(), kind, 0) };
        check_on(self.device().ordinal(), FUNCTION, functions::code(result))
    }

    /// Wraps `cuMemImportFromShareableHandle`: the `bytes` bytes of `device` that another process has exported as this descriptor, which
    /// stays open.
    ///
    /// ```
    /// # use gpucomm::{Device, Stream};
    /// # use gpucomm::cuda::vmm::{Access, HandleTypes, PhysicalMemory, MemoryProperties};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// # let device = stream.device();
    /// # let theirs = PhysicalMemory::new_with(&MemoryProperties::new(device).with_handle_types(HandleTypes::FD), 2 << 20)?;
    /// # let (fd, bytes) = (theirs.export_fd()?, theirs.bytes());
    /// // The descriptor has come over a socket, and the size with it.
    /// // SAFETY: it is one of memory, which the process that has sent it uses no more.
    /// let memory = unsafe { PhysicalMemory::import_fd(&fd, device, bytes)? };
    /// let x = memory.map(&[Access::read_write(device)])?.into_buffer::<f32>();
    /// # drop(x);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// - Uses of the memory by different processes, and by this one beside those it came from, are ordered by the caller: they do not happen
    ///   at the same time, unless all of them read. What goes wrong in another process marks nothing here.
    /// - The descriptor is one of memory.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for memory of another device, or of another size; what CUDA says.
    #[doc(alias = "cuMemImportFromShareableHandle")]
    pub unsafe fn import_fd(fd: impl AsFd, device: Device, bytes: usize) -> Result<Self> {
        const OPERATION: &str = "PhysicalMemory::import_fd";
        let fd = std::ptr::without_provenance_mut(fd.as_fd().as_raw_fd() as usize);
        // SAFETY: a handle of this kind is the descriptor itself, which stays open during the call.
        unsafe { import(OPERATION, HandleTypes::FD, fd, device, bytes) }
    }

    /// Wraps `cuMemImportFromShareableHandle`: the `bytes` bytes of `device` that another process has exported as this handle.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::vmm::{FabricHandle, HandleTypes, PhysicalMemory, MemoryProperties};
    /// # fn main() -> gpucomm::Result<()> {
    /// fn import(bytes: [u8; 64], device: Device) -> gpucomm::Result<PhysicalMemory> {
    ///     // SAFETY: the process that has sent these bytes with its message uses the memory no more.
    ///     unsafe { PhysicalMemory::import_fabric(&FabricHandle(bytes), device, 2 << 20) }
    /// }
    /// # let properties = MemoryProperties::new(Device::new(0)?).with_handle_types(HandleTypes::FABRIC);
    /// # if let Ok(memory) = PhysicalMemory::new_with(&properties, 2 << 20) {
    /// #     import(memory.export_fabric()?.0, Device::new(0)?)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// As [`PhysicalMemory::import_fd`].
    ///
    /// # Errors
    /// As there, and [`Unsupported`](Error::Unsupported) where the machine has no fabric for this process.
    #[doc(alias = "cuMemImportFromShareableHandle")]
    pub unsafe fn import_fabric(handle: &FabricHandle, device: Device, bytes: usize) -> Result<Self> {
        let place = handle.0.as_ptr().cast_mut().cast();
        // SAFETY: a handle of this kind is 64 bytes, which are there.
        unsafe { import("PhysicalMemory::import_fabric", HandleTypes::FABRIC, place, device, bytes) }
    }

    /// Sends it to a rank of this host, by its descriptor, for a purpose that the rank asks for: see [`PhysicalMemory::receive`].
    ///
    /// It returns when the kernel has the descriptor, and lives as long as somebody has it.
    ///
    /// # Errors
    /// As [`PhysicalMemory::export_fd`] and [`FdSocket::send`].
    pub fn send(&self, socket: &FdSocket, to: usize, purpose: &str) -> Result<()> {
        let fd = self.export_fd()?;
        let about = format!("{} {}", self.bytes(), self.device().pci_bus_id()?);
        socket.send_with(to, purpose, about.as_bytes(), &[fd.as_fd()])
    }

    /// The memory that a rank sends for a purpose; waits until it does, no longer than the timeout of the exchange.
    ///
    /// # Safety
    /// As [`PhysicalMemory::import_fd`], of what the rank does and has done with the memory.
    ///
    /// # Errors
    /// As [`FdSocket::receive`]; [`Exchange`](Error::Exchange) where what has come is no memory, or of a device that this process does not
    /// see; what CUDA says.
    pub unsafe fn receive(socket: &FdSocket, from: usize, purpose: &str) -> Result<Self> {
        const OPERATION: &str = "PhysicalMemory::receive";
        let (about, fds) = socket.receive_with(from, purpose)?;
        let told = |got: String| Error::Exchange {
            operation: OPERATION,
            key: purpose.to_owned(),
            reason: format!("expected memory of rank {from} on a device of this process, got {got}"),
        };
        let about = String::from_utf8_lossy(&about).into_owned();
        let parts = about.split_once(' ').and_then(|(bytes, bus)| Some((bytes.parse().ok()?, bus)));
        let (Some((bytes, bus)), [fd]) = (parts, &fds[..]) else {
            return Err(told(format!("{} descriptors and {about:?}", fds.len())));
        };
        let device = Device::at_pci_bus(bus).map_err(|error| told(format!("{bytes} bytes at {bus}: {error}")))?;
        // SAFETY: as the caller promises; a rank of this exchange has sent it as the descriptor of memory.
        unsafe { Self::import_fd(fd, device, bytes) }
    }
}

/// # Safety
/// As the handle's kind demands of `place`, and as of [`PhysicalMemory::import_fd`].
unsafe fn import(
    operation: &'static str,
    kind: HandleTypes,
    place: *mut c_void,
    device: Device,
    bytes: usize,
) -> Result<PhysicalMemory> {
    const FUNCTION: &str = "cuMemImportFromShareableHandle";
    functions::ready(operation, device)?;
    let mut raw = 0;
    // SAFETY: writes a handle to the place given; what it reads is there, as the caller promises.
    let result = unsafe { functions::import(operation)?(&raw mut raw, place, sys::CUmemAllocationHandleType(kind.0)) };
    check(FUNCTION, functions::code(result)).map_err(|error| no_fabric(error, operation, kind))?;
    let memory = PhysicalMemory::of(raw, bytes, MemoryProperties::new(device));
    held_by(operation, device, raw)?;
    is_of_size(operation, raw, bytes)?;
    Ok(memory)
}

/// Wraps `cuMemGetAllocationPropertiesFromHandle`: by which handles the memory can be shared that is mapped at this address; `None` of
/// memory that was not mapped, and where that cannot be known: the thread has to be bound to a device.
pub(crate) fn handles_at(operation: &'static str, address: *mut c_void) -> Option<HandleTypes> {
    let found = retained(address, |raw| properties(operation, raw))?;
    found.ok().map(|found| HandleTypes(found.requestedHandleTypes.0))
}

/// Wraps `cuMemGetAllocationPropertiesFromHandle`: what memory is like, which `device` holds.
///
/// # Errors
/// [`InvalidArgument`](Error::InvalidArgument) where another one does.
pub(crate) fn held_by(operation: &'static str, device: Device, raw: u64) -> Result<MemoryProperties> {
    let found = properties(operation, raw)?;
    let holder = place::ordinal(found.location);
    if holder == Some(device.ordinal()) {
        let handles = HandleTypes(found.requestedHandleTypes.0 & (HandleTypes::FD | HandleTypes::FABRIC).0);
        let rdma = found.allocFlags.gpuDirectRDMACapable != 0;
        return Ok(MemoryProperties::new(device).with_handle_types(handles).with_gpu_direct_rdma(rdma));
    }
    let got = holder.map_or_else(|| "memory of no device".to_owned(), |holder| format!("memory of device {holder}"));
    Err(Error::argument(operation, "device", format!("memory of {device}"), got))
}

/// Wraps `cuMemGetAllocationPropertiesFromHandle`.
fn properties(operation: &'static str, raw: u64) -> Result<sys::CUmemAllocationProp_v1> {
    // SAFETY: integers and a pointer, of which zero is a value.
    let mut found: sys::CUmemAllocationProp_v1 = unsafe { std::mem::zeroed() };
    // SAFETY: writes the properties to the place given; the handle is live.
    let result = unsafe { functions::properties(operation)?(&raw mut found, raw) };
    check("cuMemGetAllocationPropertiesFromHandle", functions::code(result)).map(|()| found)
}

/// Checks that memory has as many bytes as was said: the driver maps no others, and does not tell how many there are.
pub(super) fn is_of_size(operation: &'static str, raw: u64, bytes: usize) -> Result<()> {
    let wrong = |why: &dyn std::fmt::Display| {
        Error::argument(operation, "bytes", "the size of the memory", format_args!("{bytes} ({why})"))
    };
    let range = AddressRange::reserve(bytes)?;
    if range.bytes() != bytes {
        return Err(wrong(&"not a multiple of the granularity"));
    }
    // SAFETY: addresses of a reservation at which nothing is mapped, and a live handle; the driver looks at the size.
    let result = unsafe { functions::map(operation)?(range.base(), bytes, 0, raw, 0) };
    check("cuMemMap", functions::code(result)).map_err(|error| wrong(&error))?;
    // SAFETY: what was mapped just now, which no device may use.
    let result = unsafe { functions::unmap(operation)?(range.base(), bytes) };
    check("cuMemUnmap", functions::code(result))
}

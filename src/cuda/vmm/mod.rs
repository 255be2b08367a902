//! Virtual memory of devices: physical memory, addresses, and mapping the one at the other.
//!
//! Ordinary buffers come from pools. Memory that is mapped costs some microseconds more to make, and can do more: several devices see
//! it, processes share it, and a buffer of it grows where it stands.
//!
//! | | wraps | |
//! |---|---|---|
//! | [`MemoryProperties`], [`Granularity`] | `cuMemGetAllocationGranularity` | what memory is to be like, and in which steps there is some |
//! | [`PhysicalMemory`] | `cuMemCreate`, `cuMemRelease` | bytes of a device, at no address |
//! | [`AddressRange`] | `cuMemAddressReserve`, `cuMemAddressFree` | addresses, with no memory |
//! | [`Mapping`] | `cuMemMap`, `cuMemSetAccess`, `cuMemUnmap` | memory at the first of some addresses, for the devices that are given [`Access`] |
//! | [`Mapping::into_buffer`] | | a [`DeviceBuffer`](crate::DeviceBuffer) like any other; [`DeviceBuffer::grow`](crate::DeviceBuffer::grow) maps more behind it |
//! | [`PhysicalMemory::export_fd`], [`PhysicalMemory::export_fabric`] | `cuMemExportToShareableHandle` | a descriptor or a handle, by which other processes import the same memory |
//!
//! Memory that others have made with these functions is taken over by [`PhysicalMemory::from_raw`], and given away by
//! [`PhysicalMemory::into_raw`].
//!
//! The functions are those of the driver, looked up when they are first needed: a driver without one of them, or a device that cannot
//! do this, is [`Error::Unsupported`](crate::Error::Unsupported), which says what is missing. None of them waits for a device, on H200s
//! with driver 580, so none has a deadline.
//!
//! ```
//! # fn main() -> gpucomm::Result<()> {
//! use gpucomm::cuda::vmm::{Access, AddressRange, PhysicalMemory};
//! use gpucomm::{Device, DeviceBuffer, Stream};
//!
//! # if Device::count().is_err() { return Ok(()) }
//! let (device, stream) = (Device::new(0)?, Stream::new(Device::new(0)?)?);
//! // Addresses for 1 GiB, memory for the first 4 MiB.
//! let range = AddressRange::reserve(1 << 30)?;
//! let mapping = range.map(PhysicalMemory::new(device, 4 << 20)?, &[Access::read_write(device)])?;
//! let mut buffer: DeviceBuffer<f32> = mapping.into_buffer();
//! buffer.fill(&stream, 1.0)?;
//!
//! // More of it, at the same address; what was there stays.
//! buffer.grow(PhysicalMemory::new(device, 4 << 20)?)?;
//! assert_eq!(buffer.len(), 2 << 20);
//! # Ok(())
//! # }
//! ```
//!
//! What devices may do is said once, where memory is mapped, and a buffer does not shrink.
//!
//! # Between processes
//!
//! Memory that is to be shared is [made for it](MemoryProperties::handle_types), and sent *before* it is mapped, as the mapping takes it; what a
//! buffer grows by is sent piece by piece.
//!
//! ```
//! # fn main() -> gpucomm::Result<()> {
//! use gpucomm::cuda::vmm::{Access, HandleTypes, PhysicalMemory, MemoryProperties};
//! use gpucomm::exchange::{Exchange, FdSocket, Threads};
//! use gpucomm::{Device, DeviceBuffer, Stream};
//!
//! # if Device::count().is_err() { return Ok(()) }
//! # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
//! let device = Device::new(0)?;
//! let stream = Stream::new(device)?;
//! let socket = FdSocket::new(&exchange, std::env::temp_dir())?;
//! let memory = PhysicalMemory::new_with(&MemoryProperties::new(device).with_handle_types(HandleTypes::FD), 1 << 20)?;
//! // To itself here, for want of another process.
//! memory.send(&socket, 0, "weights")?;
//! let mut weights: DeviceBuffer<f32> = memory.map(&[Access::read_write(device)])?.into_buffer();
//! weights.fill(&stream, 1.0)?;
//! stream.synchronize()?;
//! exchange.barrier()?;
//!
//! // SAFETY: the barrier has kept the two apart, and from now on both only read.
//! let memory = unsafe { PhysicalMemory::receive(&socket, 0, "weights")? };
//! let theirs: DeviceBuffer<f32> = memory.map(&[Access::read(device)])?.into_buffer();
//! assert_eq!(theirs.slice(..2).to_vec(&stream)?, [1.0, 1.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # Order
//!
//! Uses of mapped memory come one after the other as those of any buffer do, whatever device they are on, and nothing is unmapped or
//! released before they are done. What *other processes* do with memory that is shared with them nobody here sees, and so imports are
//! `unsafe`.

mod access;
mod buffer;
pub(crate) mod functions;
mod handover;
mod mapping;
pub(crate) mod physical;
mod place;
mod properties;
mod range;
mod share;

pub use access::Access;
pub use mapping::Mapping;
pub use physical::PhysicalMemory;
pub use properties::{Granularity, HandleTypes, MemoryProperties};
pub use range::AddressRange;
pub use share::FabricHandle;
#[allow(unused_imports)]
pub(crate) use share::handles_at;
pub(crate) use share::held_by;

//! Virtual memory of devices: physical memory, addresses, and mapping the one at the other.
//!
//! Ordinary buffers come from pools. Memory that is mapped costs some microseconds more to make, and can do more: several devices see
//! it, processes share it, and a buffer of it grows where it stands.
//!
//! | | wraps | |
//! |---|---|---|
//! | [`Properties`], [`Granularity`] | `cuMemGetAllocationGranularity` | what memory is to be like, and in which steps there is some |
//! | [`PhysicalMemory`] | `cuMemCreate`, `cuMemRelease` | bytes of a device, at no address |
//! | [`AddressRange`] | `cuMemAddressReserve`, `cuMemAddressFree` | addresses, with no memory |
//! | [`Mapping`] | `cuMemMap`, `cuMemSetAccess`, `cuMemUnmap` | memory at the first of some addresses, for the devices that are given [`Access`] |
//! | [`Mapping::into_buffer`] | | a [`DeviceBuffer`](crate::DeviceBuffer) like any other; [`DeviceBuffer::grow`](crate::DeviceBuffer::grow) maps more behind it |
//! | [`PhysicalMemory::export_fd`], [`PhysicalMemory::export_fabric`] | `cuMemExportToShareableHandle` | a descriptor or a handle, by which other processes import the same memory |
//!
//! The functions are those of the driver, looked up when they are first needed: a driver without one of them, or a device that cannot
//! do this, is [`Error::Unsupported`](crate::Error::Unsupported), which says what is missing. None of them waits for a device, on H200s
//! with driver 580, so none has a deadline.
//!
//! ```no_run
//! # fn main() -> gpucomm::Result<()> {
//! use gpucomm::cuda::vmm::{Access, AddressRange, PhysicalMemory};
//! use gpucomm::{Device, DeviceBuffer, Stream};
//!
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
//! # Order
//!
//! Uses of mapped memory come one after the other as those of any buffer do, whatever device they are on, and nothing is unmapped or
//! released before they are done. What *other processes* do with memory that is shared with them nobody here sees, and so imports are
//! `unsafe`.

mod access;
mod buffer;
mod functions;
mod mapping;
mod physical;
mod place;
mod properties;
mod range;
mod share;

pub use access::Access;
pub use mapping::Mapping;
pub use physical::PhysicalMemory;
pub use properties::{Granularity, HandleTypes, Properties};
pub use range::AddressRange;
pub use share::FabricHandle;

//! Memory of NCCL that belongs to no communicator.

use crate::cuda::{Address, Allocation, DeviceBuffer, Owner, Stream};
use crate::default_timeout;
use crate::element::Element;
use crate::error::Result;
use crate::nccl::enqueue::in_group;
use crate::nccl::lifecycle::reclaim;
use crate::nccl::memory::block::{self, Size};
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::version;

/// Wraps `ncclMemAlloc` alone: `len` zeroed elements on the device of `stream`, in memory that NCCL can show to other ranks, for any
/// communicator.
///
/// A buffer like any other, except that [`Communicator::register`](crate::nccl::Communicator::register) can register it, with several
/// communicators too: where its bytes are whole pages (of 4096), as this memory is mapped as one. Other streams wait for the first use by
/// `stream`, which fills it. Dropping it waits for nothing: NCCL frees it when the device has done with it.
///
/// ```
/// # fn main() -> gpucomm::Result<()> {
/// use gpucomm::{Device, Stream};
///
/// # if Device::count().is_err() { return Ok(()) }
/// let stream = Stream::new(Device::new(0)?)?;
/// let mut weights = gpucomm::nccl::alloc::<f32>(&stream, 1 << 20)?;
/// weights.fill(&stream, 1.0)?;
/// assert_eq!(weights.slice(..2).to_vec(&stream)?, [1.0; 2]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`OutOfMemory`](crate::Error::OutOfMemory); [`InvalidArgument`](crate::Error::InvalidArgument) where the bytes of `len` elements cannot be
/// counted; [`LibraryTooOld`](crate::Error::LibraryTooOld); [`InvalidUsage`](crate::Error::InvalidUsage) within a group or a host function,
/// or where no thread can be started.
#[doc(alias = "ncclMemAlloc")]
pub fn alloc<T: Element>(stream: &Stream, len: usize) -> Result<DeviceBuffer<T>> {
    const OPERATION: &str = "nccl::alloc";
    in_group::outside_of_groups(OPERATION)?;
    outside_of_host_functions(OPERATION)?;
    stream.no_part_of_capture(OPERATION)?;
    version::check_nccl()?;
    let (size, device) = (Size::of::<T>(OPERATION, len)?, stream.device());
    reclaim::start(OPERATION)?;
    let ptr = block::allocate(device, size, default_timeout())?;
    let free = Box::new(reclaim::free_unowned);
    let mut buffer =
        DeviceBuffer::of(Allocation::external(Address::new(ptr), size.used, device, Owner::Anybody, free), len);
    buffer.as_slice_mut().fill_for(OPERATION, stream, T::ZERO)?;
    Ok(buffer)
}

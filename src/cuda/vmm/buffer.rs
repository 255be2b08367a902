//! Mapped memory as buffers.

use std::sync::Arc;

use super::access::reach;
use super::mapping::{Mapping, Span};
use super::physical::PhysicalMemory;
use crate::cuda::memory::allocated::allocation::{Allocation, Shown};
use crate::cuda::memory::basics::address::Address;
use crate::cuda::memory::basics::bytes::bytes_of;
use crate::cuda::memory::buffers::buffer::DeviceBuffer;
use crate::element::{Element, must_fit};
use crate::error::{Error, Result};

/// The first `bytes` bytes that are mapped, as an allocation.
fn allocation(span: &Span, bytes: usize, shown: Arc<dyn Shown>) -> Arc<Allocation> {
    let place = (Address::new(span.address()), bytes);
    Allocation::mapped(place, span.device(), Arc::clone(span.known()), reach(span.access()), shown)
}

/// As many elements as there is room for.
fn len_of<T: Element>(span: &Span) -> usize {
    must_fit::<T>();
    span.bytes() / size_of::<T>()
}

impl Mapping {
    /// All of it as a buffer, with unspecified values: as many elements as there is room for.
    ///
    /// Streams of each device that has [access](super::Access) may use it. [`DeviceBuffer::device`] is the one that holds the memory.
    ///
    /// ```
    /// # use gpucomm::{Device, Stream};
    /// # use gpucomm::cuda::vmm::{Access, PhysicalMemory};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let device = stream.device();
    /// let mapping = PhysicalMemory::new(device, 2 << 20)?.map(&[Access::read_write(device)])?;
    /// let mut buffer = mapping.into_buffer::<f32>();
    /// assert_eq!(buffer.len(), (2 << 20) / 4);
    /// buffer.fill(&stream, 1.0)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_buffer<T: Element>(self) -> DeviceBuffer<T> {
        let len = len_of::<T>(&self.0);
        DeviceBuffer::of(allocation(&self.0, len * size_of::<T>(), Arc::<Span>::clone(&self.0)), len)
    }

    /// The first `len` elements as a buffer, with unspecified values; see [`Mapping::into_buffer`].
    ///
    /// ```
    /// # use gpucomm::{Device, Stream};
    /// # use gpucomm::cuda::vmm::{Access, PhysicalMemory};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let device = stream.device();
    /// let mapping = PhysicalMemory::new(device, 4000)?.map(&[Access::read_write(device)])?;
    /// // Memory comes in large steps: this has just the elements that were asked for.
    /// let mut buffer = mapping.into_buffer_of::<f32>(1000)?;
    /// buffer.copy_from_slice(&stream, &[0.5; 1000])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) where there is no room for so many.
    pub fn into_buffer_of<T: Element>(self, len: usize) -> Result<DeviceBuffer<T>> {
        const OPERATION: &str = "Mapping::into_buffer_of";
        let (bytes, most) = (bytes_of::<T>(OPERATION, len)?, len_of::<T>(&self.0));
        if len > most {
            return Err(Error::argument(OPERATION, "length", format_args!("at most {most}"), len));
        }
        Ok(DeviceBuffer::of(allocation(&self.0, bytes, Arc::<Span>::clone(&self.0)), len))
    }
}

impl<T: Element> DeviceBuffer<T> {
    /// Wraps `cuMemMap` and `cuMemSetAccess`: maps `memory` behind a buffer over [mapped memory](crate::cuda::vmm), which shows all that is
    /// mapped then. The new elements have unspecified values, those before them stay where they are, as they are; nothing waits.
    ///
    /// It has to be the only buffer over this mapping: none that it was split into, no [`alias`](DeviceBuffer::alias), and not registered with a
    /// communicator, which knows it as it is.
    ///
    /// ```
    /// # use gpucomm::{Device, Stream};
    /// # use gpucomm::cuda::vmm::{Access, AddressRange, PhysicalMemory};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let device = stream.device();
    /// let range = AddressRange::reserve(64 << 20)?;
    /// let mapping = range.map(PhysicalMemory::new(device, 2 << 20)?, &[Access::read_write(device)])?;
    /// let mut buffer = mapping.into_buffer::<u8>();
    /// buffer.fill(&stream, 7)?;
    ///
    /// let (address, before) = (buffer.as_raw(), buffer.len());
    /// buffer.grow(PhysicalMemory::new(device, 2 << 20)?)?;
    /// assert_eq!((buffer.as_raw(), buffer.len()), (address, 2 * before));
    /// assert_eq!(buffer.slice(before - 1..before).to_vec(&stream)?, [7]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidUsage`](Error::InvalidUsage) for a buffer over other memory, one that does not show what its mapping did, and one that others
    /// show too; otherwise as [`Mapping::push`]. The buffer stays as it was then.
    #[doc(alias("cuMemMap", "cuMemSetAccess"))]
    pub fn grow(&mut self, memory: PhysicalMemory) -> Result<()> {
        const OPERATION: &str = "DeviceBuffer::grow";
        let refused = |reason: &str| Err(Error::InvalidUsage { operation: OPERATION, reason: reason.into() });
        let shown = self.allocation().shown().cloned();
        let Some(span) = shown.as_ref().and_then(|shown| shown.as_any().downcast_ref::<Span>()) else {
            return refused("the buffer is not over mapped memory, behind which more could be mapped");
        };
        if self.as_raw() != span.address() || self.len() * size_of::<T>() != self.allocation().bytes() {
            return refused("the buffer is a part of the one that was made of the mapping");
        }
        // Who has this one alone can be joined by nobody meanwhile.
        if Arc::strong_count(self.allocation()) > 1 {
            return refused(
                "the memory is registered with a communicator, or has other buffers too, which would not grow",
            );
        }
        span.push(OPERATION, memory)?;
        let len = len_of::<T>(span);
        let shown = Arc::clone(shown.as_ref().expect("it was looked at above"));
        *self = Self::of(allocation(span, len * size_of::<T>(), shown), len);
        Ok(())
    }

    /// How many elements the buffer can have without moving: more than there are only over [mapped memory](crate::cuda::vmm) with addresses
    /// behind it.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # use gpucomm::cuda::vmm::{Access, AddressRange, PhysicalMemory};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let pool = DeviceBuffer::<u8>::zeroed(&stream, 100)?;
    /// assert_eq!(pool.capacity(), 100);
    ///
    /// let memory = PhysicalMemory::new(stream.device(), 2 << 20)?;
    /// let mapping = AddressRange::reserve(64 << 20)?.map(memory, &[Access::read_write(stream.device())])?;
    /// let buffer = mapping.into_buffer::<u8>();
    /// assert_eq!((buffer.len(), buffer.capacity()), (2 << 20, 64 << 20));
    /// # Ok(())
    /// # }
    /// ```
    pub fn capacity(&self) -> usize {
        let shown = self.allocation().shown().and_then(|shown| shown.as_any().downcast_ref::<Span>());
        shown.filter(|span| self.as_raw() == span.address()).map_or(self.len(), |span| span.capacity() / size_of::<T>())
    }
}

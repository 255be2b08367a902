//! Mapped memory as buffers.

use std::sync::Arc;

use super::access::reach;
use super::mapping::{Mapping, Span};
use super::physical::PhysicalMemory;
use crate::cuda::memory::allocation::{Allocation, Shown};
use crate::cuda::memory::basics::address::Address;
use crate::cuda::memory::basics::bytes::bytes_of;
use crate::cuda::memory::buffer::DeviceBuffer;
use crate::element::Element;
use crate::error::{Error, Result};

/// The first `bytes` bytes that are mapped, as an allocation.
fn allocation(span: &Span, bytes: usize, shown: Arc<dyn Shown>) -> Arc<Allocation> {
    let place = (Address::new(span.address()), bytes);
    Allocation::mapped(place, span.device(), Arc::clone(span.known()), reach(span.access()), shown)
}

impl Mapping {
    /// All of it as a buffer, with unspecified values: as many elements as there is room for.
    ///
    /// Streams of each device that has [access](super::Access) may use it. [`DeviceBuffer::device`] is the one that holds the memory.
    pub fn into_buffer<T: Element>(self) -> DeviceBuffer<T> {
        let len = self.bytes() / size_of::<T>();
        DeviceBuffer::of(allocation(&self.0, self.bytes(), Arc::<Span>::clone(&self.0)), len)
    }

    /// The first `len` elements as a buffer, with unspecified values; see [`Mapping::into_buffer`].
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) where there is no room for so many.
    pub fn into_buffer_of<T: Element>(self, len: usize) -> Result<DeviceBuffer<T>> {
        const OPERATION: &str = "Mapping::into_buffer_of";
        let (bytes, most) = (bytes_of::<T>(OPERATION, len)?, self.bytes() / size_of::<T>());
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
    /// Other buffers over the same memory keep their lengths.
    ///
    /// # Errors
    /// [`InvalidUsage`](Error::InvalidUsage) for a buffer over other memory, or one that does not begin where the mapping does;
    /// otherwise as [`Mapping::push`]. The buffer stays as it was then.
    pub fn grow(&mut self, memory: PhysicalMemory) -> Result<()> {
        const OPERATION: &str = "DeviceBuffer::grow";
        let refused = |reason: &str| Err(Error::InvalidUsage { operation: OPERATION, reason: reason.into() });
        let shown = self.allocation().shown().cloned();
        let Some(span) = shown.as_ref().and_then(|shown| shown.as_any().downcast_ref::<Span>()) else {
            return refused("the buffer is not over mapped memory, behind which more could be mapped");
        };
        if self.as_raw() != span.address() {
            return refused("the buffer does not begin where the mapping does");
        }
        span.push(OPERATION, memory)?;
        let bytes = span.bytes();
        let grown = allocation(span, bytes, Arc::clone(shown.as_ref().expect("it was looked at above")));
        *self = Self::of(grown, bytes / size_of::<T>());
        Ok(())
    }

    /// How many elements the buffer can have without moving: more than there are only over [mapped memory](crate::cuda::vmm) with addresses
    /// behind it.
    pub fn capacity(&self) -> usize {
        let shown = self.allocation().shown().and_then(|shown| shown.as_any().downcast_ref::<Span>());
        shown.filter(|span| self.as_raw() == span.address()).map_or(self.len(), |span| span.capacity() / size_of::<T>())
    }
}

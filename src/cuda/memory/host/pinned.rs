//! Pinned memory of the host, that devices copy from and to without waiting.

use std::ffi::c_void;
use std::marker::PhantomData;

use super::memory::PinnedMemory;
use super::slice::{PinnedSlice, PinnedSliceMut};
use crate::cuda::devices::device::Device;
use crate::cuda::memory::basics::address::Address;
use crate::cuda::memory::basics::bytes::bytes_of;
use crate::element::{self, Element};
use crate::error::Result;

/// Elements in pinned memory of the host. Copies between it and devices are asynchronous; access from the host waits
/// for them.
///
/// A part of it is a [`PinnedSlice`] or a [`PinnedSliceMut`], which copies take as well.
///
/// Dropping it never waits: the memory is kept, and used again once no device uses it any more. See
/// [`trim_pinned`](crate::cuda::trim_pinned).
///
/// ```
/// # fn main() -> gpucomm::Result<()> {
/// use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
///
/// # if Device::count().is_err() { return Ok(()) }
/// let stream = Stream::new(Device::new(0)?)?;
/// let sources = [DeviceBuffer::from_slice(&stream, &[1, 2])?, DeviceBuffer::from_slice(&stream, &[3, 4])?];
/// let mut all = PinnedBuffer::<i32>::new(4)?;
/// for (source, part) in sources.iter().zip(all.chunks_mut(2)) {
///     source.copy_to_pinned(&stream, part)?;
/// }
/// assert_eq!(all.as_slice()?, [1, 2, 3, 4]);
/// # Ok(())
/// # }
/// ```
pub struct PinnedBuffer<T: Element> {
    memory: PinnedMemory,
    len: usize,
    _elements: PhantomData<T>,
}

impl<T: Element> PinnedBuffer<T> {
    /// Wraps `cudaHostAlloc`: `len` zeros in pinned memory that every device can use. Where memory of that size is kept, it
    /// is used again.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::Error::OutOfMemory); [`InvalidArgument`](crate::Error::InvalidArgument) for a length whose bytes cannot be
    /// counted; what CUDA says.
    pub fn new(len: usize) -> Result<Self> {
        Self::make("PinnedBuffer::new", len)
    }

    fn make(operation: &'static str, len: usize) -> Result<Self> {
        Device::count_for(operation)?;
        let memory = PinnedMemory::zeroed(bytes_of::<T>(operation, len)?)?;
        Ok(Self { memory, len, _elements: PhantomData })
    }

    /// Wraps `cudaHostAlloc`: a copy of `values` in pinned memory.
    ///
    /// # Errors
    /// As [`PinnedBuffer::new`].
    pub fn from_slice(values: &[T]) -> Result<Self> {
        let mut buffer = Self::make("PinnedBuffer::from_slice", values.len())?;
        buffer.as_mut_slice()?.copy_from_slice(values);
        Ok(buffer)
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address on the host, which devices use as well; null for an empty buffer. For calls of other libraries, which have to be
    /// ordered against the copies to and from the buffer by yourself.
    pub fn as_raw(&self) -> *mut c_void {
        self.address().ptr()
    }

    pub(crate) fn address(&self) -> Address {
        self.memory.address()
    }

    pub(crate) fn memory(&self) -> &PinnedMemory {
        &self.memory
    }

    /// All elements, to read.
    pub(crate) fn view(&self) -> PinnedSlice<'_, T> {
        PinnedSlice::of(&self.memory, self.address(), self.len)
    }

    /// All elements, to write.
    pub(crate) fn view_mut(&mut self) -> PinnedSliceMut<'_, T> {
        PinnedSliceMut::of(&self.memory, self.address(), self.len)
    }

    /// Takes the elements as they are, also where they come from an operation of a communicator that has failed.
    /// Waits until that communicator has stopped.
    pub fn accept(&mut self) {
        self.memory.lineage().accept();
    }

    /// The elements, after the copies to them are done. Waits for those, no longer than the default timeout.
    ///
    /// # Errors
    /// [`Timeout`](crate::Error::Timeout); where the elements come from an operation of a communicator that has failed, each time why, such
    /// as [`Aborted`](crate::Error::Aborted); [`InvalidArgument`](crate::Error::InvalidArgument) where they are no values of a type that has
    /// invalid ones, such as `bool`, of which all are looked at each time; what CUDA says.
    pub fn as_slice(&self) -> Result<&[T]> {
        self.view().read("PinnedBuffer::as_slice")
    }

    /// The elements, after the copies to and from them are done. Waits for those, no longer than the default timeout.
    ///
    /// # Errors
    /// As [`PinnedBuffer::as_slice`]; say [`PinnedBuffer::accept`] to overwrite what a failed operation has left, and write
    /// [bytes](PinnedSliceMut::into_bytes) over what is no value.
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        self.view_mut().write("PinnedBuffer::as_mut_slice")
    }
}

impl<T: Element> std::fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedBuffer<{}>({} elements)", element::name::<T>(), self.len)
    }
}

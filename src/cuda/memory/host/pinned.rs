//! Pinned memory of the host, that devices copy from and to without waiting.

use std::ffi::c_void;
use std::marker::PhantomData;

use super::memory::PinnedMemory;
use super::slice::PinnedSlice;
use super::slice_mut::PinnedSliceMut;
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
    /// ```
    /// # use gpucomm::PinnedBuffer;
    /// # fn main() -> gpucomm::Result<()> {
    /// let mut batch = PinnedBuffer::<f32>::new(1000)?;
    /// batch.as_mut_slice()?[0] = 1.0;
    /// assert_eq!((batch.len(), batch.is_empty(), batch.as_slice()?[..2].to_vec()), (1000, false, vec![1.0, 0.0]));
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use gpucomm::PinnedBuffer;
    /// # fn main() -> gpucomm::Result<()> {
    /// let pinned = PinnedBuffer::from_slice(&[1, 2, 3])?;
    /// assert_eq!(pinned.as_slice()?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
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
    ///
    /// ```
    /// # use gpucomm::PinnedBuffer;
    /// # fn main() -> gpucomm::Result<()> {
    /// let pinned = PinnedBuffer::<u8>::new(100)?;
    /// // Another library may give this to a copy of its own.
    /// assert!(!pinned.as_raw().is_null());
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_raw(&self) -> *mut c_void {
        self.address().ptr()
    }

    pub(crate) fn address(&self) -> Address {
        self.memory.address()
    }

    pub(crate) fn memory(&self) -> &PinnedMemory {
        &self.memory
    }

    /// What it is made of, and how many elements that has.
    pub(crate) fn into_memory(self) -> (PinnedMemory, usize) {
        (self.memory, self.len)
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
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, PinnedBuffer, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut x = DeviceBuffer::from_slice(&stream, &[comm.rank() as f32; 10])?;
    /// let mut pinned = PinnedBuffer::<f32>::new(10)?;
    /// comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    /// x.copy_to_pinned(&stream, &mut pinned)?;
    /// comm.aborter().abort("something else has failed");
    /// assert!(pinned.as_slice().is_err());
    /// pinned.accept();
    /// println!("{:?}", pinned.as_slice()?);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn accept(&mut self) {
        self.memory.lineage().accept();
    }

    /// The elements, after the copies to them are done. Waits for those, no longer than the default timeout.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut pinned = PinnedBuffer::<i32>::new(2)?;
    /// DeviceBuffer::from_slice(&stream, &[1, 2])?.copy_to_pinned(&stream, &mut pinned)?;
    /// assert_eq!(pinned.as_slice()?.iter().sum::<i32>(), 3);
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut pinned = PinnedBuffer::from_slice(&[1, 2])?;
    /// let mut x = DeviceBuffer::<i32>::zeroed(&stream, 2)?;
    /// x.copy_from_pinned(&stream, &pinned)?;
    /// // Waits until the copy has read what stands there.
    /// pinned.as_mut_slice()?.fill(0);
    /// assert_eq!(x.to_vec(&stream)?, [1, 2]);
    /// # Ok(())
    /// # }
    /// ```
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

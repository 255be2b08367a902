//! Pinned memory of the host, that devices copy from and to without waiting.

use std::marker::PhantomData;

use super::memory::PinnedMemory;
use super::slice::PinnedSlice;
use super::slice_mut::PinnedSliceMut;
use crate::cuda::devices::device::Device;
use crate::cuda::memory::basics::address::Address;
use crate::cuda::memory::basics::bytes::bytes_of;
use crate::cuda::memory::methods::parts::part_methods;
use crate::cuda::memory::methods::pinned::pinned_methods;
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
/// let mut all = PinnedBuffer::<i32>::zeroed(4)?;
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
    /// let mut batch = PinnedBuffer::<f32>::zeroed(1000)?;
    /// batch.as_slice_mut()?[0] = 1.0;
    /// assert_eq!((batch.len(), batch.is_empty(), batch.as_slice()?[..2].to_vec()), (1000, false, vec![1.0, 0.0]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::Error::OutOfMemory); [`InvalidArgument`](crate::Error::InvalidArgument) for a length whose bytes cannot be
    /// counted; what CUDA says.
    #[doc(alias = "cudaHostAlloc")]
    pub fn zeroed(len: usize) -> Result<Self> {
        Self::make("PinnedBuffer::zeroed", len)
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
    /// As [`PinnedBuffer::zeroed`].
    #[doc(alias = "cudaHostAlloc")]
    pub fn from_slice(values: &[T]) -> Result<Self> {
        let mut buffer = Self::make("PinnedBuffer::from_slice", values.len())?;
        buffer.as_slice_mut()?.copy_from_slice(values);
        Ok(buffer)
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
    /// let mut pinned = PinnedBuffer::<f32>::zeroed(10)?;
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
}

/// What examples begin and end with.
macro_rules! begin {
    () => {
        "# use gpucomm::PinnedBuffer;
# fn main() -> gpucomm::Result<()> {
let mut x = PinnedBuffer::from_slice(&[1, 2, 3, 4])?;"
    };
}
macro_rules! end {
    () => {
        "# Ok(())
# }"
    };
}

pinned_methods! { read [T: Element] PinnedBuffer<T>, "PinnedBuffer", '_, *mut, (begin!(), end!()) }
pinned_methods! { write [T: Element] PinnedBuffer<T>, "PinnedBuffer", (begin!(), end!()) }
part_methods! {
    convert [T: Element] PinnedBuffer<T>, PinnedSlice, AsPinned, view, PinnedSliceMut, AsPinnedMut, view_mut
}

impl<T: Element> std::fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedBuffer<{}>({} elements)", element::name::<T>(), self.len)
    }
}

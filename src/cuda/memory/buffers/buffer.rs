//! Buffers: device memory that is owned.

use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use crate::cuda::memory::allocated::allocation::Allocation;
use crate::cuda::memory::basics::address::Address;
use crate::cuda::memory::basics::bytes::bytes_of;
use crate::cuda::memory::methods::device::device_methods;
use crate::cuda::memory::views::slice::Slice;
use crate::cuda::memory::views::slice_mut::SliceMut;
use crate::cuda::order::stream::Stream;
use crate::element::{self, Element};
use crate::error::Result;

/// Elements in the memory of a device.
///
/// Memory is allocated in the order of a stream, and freed in its order, after all uses on other streams: dropping a
/// buffer never waits for the device. (A device without memory pools is the exception: there it waits up to some
/// seconds.) The memory is of a pool of CUDA, and while a process has one, a launch on several GPUs takes somewhat longer: where
/// a microsecond counts, take all memory from NCCL (`Communicator::alloc` and `alloc_local`).
///
/// Any stream may use the buffer. Where another stream used it before in a way that conflicts, the crate makes the one
/// wait for the other.
///
/// ```
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let stream = Stream::new(Device::new(0)?)?;
/// let mut x = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0])?;
/// assert_eq!((x.len(), x.is_empty(), x.device()), (3, false, stream.device()));
/// x.slice_mut(1..).fill(&stream, 5.0)?;
/// assert_eq!(x.to_vec(&stream)?, [1.0, 5.0, 5.0]);
/// # Ok(())
/// # }
/// ```
pub struct DeviceBuffer<T: Element> {
    alloc: Arc<Allocation>,
    address: Address,
    len: usize,
    _elements: PhantomData<T>,
}

impl<T: Element> DeviceBuffer<T> {
    /// Wraps `cudaMallocFromPoolAsync`: `len` elements on the device of `stream`, with unspecified values.
    ///
    /// That is no `unsafe` function, because device memory is no Rust place: who copies it to the host before anything was written gets
    /// bytes that a device has sent, of which nobody can say what they are: what another buffer of this process has left there, perhaps. All
    /// of them are values, or looked at ([`Element::CHECK`]). It is a mistake all the same, and nothing here finds it; the
    /// emulator has such bytes stand out, when it is strict.
    ///
    /// Where memory has run out, that of buffers of communicators which were dropped is waited for while it is being freed, no
    /// longer than the default timeout or ten seconds.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// // What is overwritten as a whole needs no zeros.
    /// let mut x = DeviceBuffer::<f32>::uninit(&stream, 1000)?;
    /// x.copy_from_slice(&stream, &[0.5; 1000])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::Error::OutOfMemory); [`InvalidArgument`](crate::Error::InvalidArgument) for a length
    /// whose bytes cannot be counted; what CUDA says.
    #[doc(alias = "cudaMallocFromPoolAsync")]
    pub fn uninit(stream: &Stream, len: usize) -> Result<Self> {
        Self::make("DeviceBuffer::uninit", stream, len)
    }

    fn make(operation: &'static str, stream: &Stream, len: usize) -> Result<Self> {
        Ok(Self::of(Allocation::new(operation, stream, bytes_of::<T>(operation, len)?)?, len))
    }

    /// The first `len` elements of an allocation.
    pub(crate) fn of(alloc: Arc<Allocation>, len: usize) -> Self {
        let address = alloc.address();
        Self { alloc, address, len, _elements: PhantomData }
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.alloc
    }

    /// Wraps `cudaMallocFromPoolAsync` and `cudaMemsetAsync`: `len` zeros on the device of `stream`.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::<u64>::zeroed(&stream, 3)?;
    /// assert_eq!(x.to_vec(&stream)?, [0, 0, 0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`DeviceBuffer::uninit`].
    #[doc(alias("cudaMallocFromPoolAsync", "cudaMemsetAsync"))]
    pub fn zeroed(stream: &Stream, len: usize) -> Result<Self> {
        const OPERATION: &str = "DeviceBuffer::zeroed";
        let mut buffer = Self::make(OPERATION, stream, len)?;
        buffer.as_slice_mut().fill_for(OPERATION, stream, T::ZERO)?;
        Ok(buffer)
    }

    /// Wraps `cudaMallocFromPoolAsync` and `cudaMemcpyAsync`: a copy of `values` on the device of `stream`.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1u16, 2, 3])?;
    /// assert_eq!(x.to_vec(&stream)?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`DeviceBuffer::uninit`] and [`SliceMut::copy_from_slice`].
    #[doc(alias("cudaMallocFromPoolAsync", "cudaMemcpyAsync"))]
    pub fn from_slice(stream: &Stream, values: &[T]) -> Result<Self> {
        const OPERATION: &str = "DeviceBuffer::from_slice";
        let mut buffer = Self::make(OPERATION, stream, values.len())?;
        buffer.as_slice_mut().copy_from_slice_for(OPERATION, stream, values)?;
        Ok(buffer)
    }

    /// Another buffer that shows the elements of `range`: the same memory, which is freed when the last of its buffers is gone.
    ///
    /// For programs that keep views of one allocation where no borrow can: parameters and the bucket that they lie in, say. Uses of
    /// all these buffers come one after the other as if there were only one, on whatever streams; and what a failed operation has left
    /// in one, all of them [report](crate::cuda#failed-work).
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Device, DeviceBuffer, Stream};
    ///
    /// let stream = Stream::new(Device::new(0)?)?;
    /// let mut bucket = DeviceBuffer::<f32>::zeroed(&stream, 100)?;
    /// // SAFETY: this thread alone uses both, one after the other.
    /// let mut weights = unsafe { bucket.alias(20..30)? };
    /// weights.fill(&stream, 1.0)?;
    /// assert_eq!(bucket.slice(29..31).to_vec(&stream)?, [1.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// What is written through one of the buffers, and read or written through another, is not asked for by two threads at the same time,
    /// nor in one call, nor in one group: nobody looks for such buffers among those of a call, and what a failed operation has left is
    /// lost between two threads.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) where the range does not lie within the buffer.
    pub unsafe fn alias(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let part = self.as_slice().slice_for("DeviceBuffer::alias", &range)?;
        Ok(self.showing(part.region().address, part.len()))
    }

    /// Another buffer over the same memory. The caller has checked that `len` elements lie at `address`,
    /// and no other buffer shows any of them, or the caller has promised what [`alias`](Self::alias) says.
    pub(crate) fn showing<U: Element>(&self, address: Address, len: usize) -> DeviceBuffer<U> {
        DeviceBuffer { alloc: Arc::clone(&self.alloc), address, len, _elements: PhantomData }
    }
}

device_methods! {
    own [T: Element] DeviceBuffer<T>, "DeviceBuffer", cast DeviceBuffer<U>, (
        "# use gpucomm::{Device, DeviceBuffer, Error, PinnedBuffer, Stream};
# use std::time::Duration;
# fn main() -> gpucomm::Result<()> {
# let stream = Stream::new(Device::new(0)?)?;
let mut x = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4])?;",
        "# Ok(())
# }"
    )
}

impl<T: Element> std::fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceBuffer<{}>({} elements on {})", element::name::<T>(), self.len, self.device())
    }
}

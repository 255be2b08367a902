//! Buffers: device memory that is owned.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use super::allocation::Allocation;
use super::basics::address::Address;
use super::basics::bytes::bytes_of;
use super::host::slice::{AsPinned, AsPinnedMut};
use super::slice::{AsSlice, AsSliceMut, Slice, SliceMut};
use crate::cuda::devices::device::Device;
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
    pub fn from_slice(stream: &Stream, values: &[T]) -> Result<Self> {
        const OPERATION: &str = "DeviceBuffer::from_slice";
        let mut buffer = Self::make(OPERATION, stream, values.len())?;
        buffer.as_slice_mut().copy_from_slice_for(OPERATION, stream, values)?;
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

    /// The device that holds them.
    #[inline]
    pub fn device(&self) -> Device {
        self.alloc.device()
    }

    /// The address on the device; null for an empty buffer. For calls of other libraries, which have to be ordered
    /// against the uses of the buffer by yourself.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::<f32>::zeroed(&stream, 10)?;
    /// // Another library gets the address when the zeros are there.
    /// stream.synchronize()?;
    /// assert!(!x.as_raw().is_null());
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_raw(&self) -> *mut c_void {
        self.address.ptr()
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
        // SAFETY: as the caller promises.
        unsafe { self.part("DeviceBuffer::alias", &range) }
    }

    /// Another buffer that shows the elements of `range`, for `operation`.
    ///
    /// # Safety
    /// As [`DeviceBuffer::alias`].
    pub(crate) unsafe fn part(&self, operation: &'static str, range: &impl RangeBounds<usize>) -> Result<Self> {
        let shown = self.as_slice().slice_for(operation, range)?.region();
        let len = shown.bytes / size_of::<T>();
        Ok(Self { alloc: Arc::clone(&self.alloc), address: shown.address, len, _elements: PhantomData })
    }

    /// The same memory from where this buffer begins, as so many elements of `U`. The caller has seen to it that no other buffer shows
    /// any of them, and that they lie where such elements may.
    pub(crate) fn with_len<U: Element>(self, len: usize) -> DeviceBuffer<U> {
        DeviceBuffer { alloc: self.alloc, address: self.address, len, _elements: PhantomData }
    }

    /// All elements, to read.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4])?;
    /// let (front, back) = x.as_slice().split_at(1);
    /// assert_eq!((front.len(), back.to_vec(&stream)?), (1, vec![2, 3, 4]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_slice(&self) -> Slice<'_, T> {
        Slice::of(&self.alloc, self.address, self.len)
    }

    /// All elements, to write.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// fn clear_ends(mut x: gpucomm::cuda::SliceMut<'_, i32>, stream: &Stream) -> gpucomm::Result<()> {
    ///     let last = x.len() - 1;
    ///     x.slice_mut(..1).fill(stream, 0)?;
    ///     x.slice_mut(last..).fill(stream, 0)
    /// }
    ///
    /// let mut x = DeviceBuffer::from_slice(&stream, &[1, 2, 3])?;
    /// clear_ends(x.as_slice_mut(), &stream)?;
    /// assert_eq!(x.to_vec(&stream)?, [0, 2, 0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_slice_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut::of(&self.alloc, self.address, self.len)
    }

    /// The elements of `range`, to read.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4])?;
    /// assert_eq!(x.slice(1..3).to_vec(&stream)?, [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where the range does not lie within the buffer.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_, T> {
        self.as_slice().slice(range)
    }

    /// The elements of `range`, to read.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Error, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::<f32>::zeroed(&stream, 10)?;
    /// assert_eq!(x.try_slice(8..)?.len(), 2);
    /// assert!(matches!(x.try_slice(8..11), Err(Error::InvalidArgument { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) where the range does not lie within the buffer.
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
        self.as_slice().try_slice(range)
    }

    /// The elements of `range`, to write.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<u8>::zeroed(&stream, 4)?;
    /// x.slice_mut(1..3).copy_from_slice(&stream, &[7, 8])?;
    /// assert_eq!(x.to_vec(&stream)?, [0, 7, 8, 0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where the range does not lie within the buffer.
    #[track_caller]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SliceMut<'_, T> {
        match self.as_slice_mut().into_range("SliceMut::slice_mut", &range) {
            Ok(slice) => slice,
            Err(error) => panic!("{error}"),
        }
    }

    /// The elements of `range`, to write.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<u8>::zeroed(&stream, 4)?;
    /// x.try_slice_mut(2..)?.fill(&stream, 1)?;
    /// assert!(x.try_slice_mut(5..).is_err());
    /// assert_eq!(x.to_vec(&stream)?, [0, 0, 1, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) where the range does not lie within the buffer.
    pub fn try_slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>> {
        self.as_slice_mut().into_range("SliceMut::try_slice_mut", &range)
    }

    /// The elements before `mid` and those from it on, to read.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1, 2, 3])?;
    /// let (front, back) = x.split_at(2);
    /// assert_eq!((front.to_vec(&stream)?, back.to_vec(&stream)?), (vec![1, 2], vec![3]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `mid` is greater than the length.
    #[track_caller]
    pub fn split_at(&self, mid: usize) -> (Slice<'_, T>, Slice<'_, T>) {
        self.as_slice().split_at(mid)
    }

    /// The elements before `mid` and those from it on; see [`SliceMut::split_at_mut`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::from_slice(&stream, &[1, 2, 0, 0])?;
    /// let (front, mut back) = x.split_at_mut(2);
    /// back.copy_from(&stream, &front)?;
    /// assert_eq!(x.to_vec(&stream)?, [1, 2, 1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `mid` is greater than the length.
    #[track_caller]
    pub fn split_at_mut(&mut self, mid: usize) -> (SliceMut<'_, T>, SliceMut<'_, T>) {
        self.as_slice_mut().into_parts("SliceMut::split_at_mut", mid)
    }

    /// Takes the elements as they are, also where they come from an operation of a communicator that has failed or was
    /// aborted: copies of them to the host report that no more. Waits until that communicator has stopped.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut x = DeviceBuffer::from_slice(&stream, &[comm.rank() as f32; 10])?;
    /// comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    /// comm.aborter().abort("something else has failed");
    /// // Nobody knows whether the sum was there before.
    /// assert!(x.to_vec(&stream).is_err());
    /// x.accept();
    /// stream.accept();
    /// println!("{:?}", x.to_vec(&stream)?);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn accept(&mut self) {
        self.as_slice_mut().accept();
    }

    /// Wraps `cudaMemcpyAsync`; see [`SliceMut::copy_from_slice`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<i32>::uninit(&stream, 3)?;
    /// x.copy_from_slice(&stream, &[1, 2, 3])?;
    /// assert_eq!(x.to_vec(&stream)?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn copy_from_slice(&mut self, stream: &Stream, values: &[T]) -> Result<()> {
        self.as_slice_mut().copy_from_slice(stream, values)
    }

    /// Wraps `cudaMemcpyAsync`; see [`Slice::copy_to_slice`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1, 2, 3])?;
    /// let mut values = [0; 3];
    /// x.copy_to_slice(&stream, &mut values)?;
    /// assert_eq!(values, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn copy_to_slice(&self, stream: &Stream, values: &mut [T]) -> Result<()> {
        self.as_slice().copy_to_slice(stream, values)
    }

    /// Wraps `cudaMemcpyAsync`; see [`Slice::copy_to_slice_within`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1, 2, 3])?;
    /// let mut values = [0; 3];
    /// x.copy_to_slice_within(&stream, &mut values, Duration::from_secs(10))?;
    /// assert_eq!(values, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn copy_to_slice_within(&self, stream: &Stream, values: &mut [T], timeout: Duration) -> Result<()> {
        self.as_slice().copy_to_slice_within(stream, values, timeout)
    }

    /// Wraps `cudaMemcpyAsync`; see [`Slice::to_vec`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[true, false])?;
    /// assert_eq!(x.to_vec(&stream)?, [true, false]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        self.as_slice().to_vec(stream)
    }

    /// Wraps `cudaMemcpyAsync` and `cudaMemcpyPeerAsync`; see [`SliceMut::copy_from`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1, 2, 3])?;
    /// let mut y = DeviceBuffer::<i32>::zeroed(&stream, 2)?;
    /// y.copy_from(&stream, x.slice(1..))?;
    /// assert_eq!(y.to_vec(&stream)?, [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn copy_from<'a>(&mut self, stream: &Stream, source: impl AsSlice<'a, T>) -> Result<()> {
        self.as_slice_mut().copy_from(stream, source)
    }

    /// Wraps `cudaMemcpyAsync`; see [`SliceMut::copy_from_pinned`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let batch = PinnedBuffer::from_slice(&[1.0f32, 2.0])?;
    /// let mut x = DeviceBuffer::<f32>::uninit(&stream, 2)?;
    /// x.copy_from_pinned(&stream, &batch)?;
    /// assert_eq!(x.to_vec(&stream)?, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn copy_from_pinned<'a>(&mut self, stream: &Stream, source: impl AsPinned<'a, T>) -> Result<()> {
        self.as_slice_mut().copy_from_pinned(stream, source)
    }

    /// Wraps `cudaMemcpyAsync`; see [`Slice::copy_to_pinned`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0])?;
    /// let mut results = PinnedBuffer::<f32>::new(2)?;
    /// x.copy_to_pinned(&stream, &mut results)?;
    /// // There is time for something else here. Looking at the values waits for them.
    /// assert_eq!(results.as_slice()?, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn copy_to_pinned<'a>(&self, stream: &Stream, target: impl AsPinnedMut<'a, T>) -> Result<()> {
        self.as_slice().copy_to_pinned(stream, target)
    }

    /// Wraps `cudaMemsetAsync` and its kin; see [`SliceMut::fill`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<f64>::uninit(&stream, 1000)?;
    /// x.fill(&stream, 0.25)?;
    /// assert_eq!(x.to_vec(&stream)?, [0.25; 1000]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn fill(&mut self, stream: &Stream, value: T) -> Result<()> {
        self.as_slice_mut().fill(stream, value)
    }
}

impl<'a, T: Element> AsSlice<'a, T> for &'a DeviceBuffer<T> {}
impl<'a, T: Element> AsSliceMut<'a, T> for &'a mut DeviceBuffer<T> {}

impl<'a, T: Element> From<&'a DeviceBuffer<T>> for Slice<'a, T> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T: Element> From<&'a mut DeviceBuffer<T>> for SliceMut<'a, T> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        buffer.as_slice_mut()
    }
}

impl<T: Element> std::fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceBuffer<{}>({} elements on {})", element::name::<T>(), self.len, self.device())
    }
}

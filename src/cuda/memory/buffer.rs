//! Buffers: device memory that is owned.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use super::allocation::Allocation;
use super::pinned::PinnedBuffer;
use super::slice::{Slice, SliceMut};
use crate::cuda::devices::device::Device;
use crate::cuda::order::stream::Stream;
use crate::element::Element;
use crate::error::{Error, Result};

/// Elements in the memory of a device.
///
/// Memory is allocated in the order of a stream, and freed in its order, after all uses on other streams: dropping a
/// buffer never waits for the device. (A device without memory pools is the exception: there it waits up to some
/// seconds.) The memory is of a pool of CUDA, and while a process has one, a launch on several GPUs takes somewhat longer: where
/// a microsecond counts, take all memory from NCCL (`Communicator::alloc` and `alloc_local`).
///
/// Any stream may use the buffer. Where another stream used it before in a way that conflicts, the crate makes the one
/// wait for the other.
pub struct DeviceBuffer<T: Element> {
    alloc: Arc<Allocation>,
    len: usize,
    _elements: PhantomData<T>,
}

impl<T: Element> DeviceBuffer<T> {
    /// Wraps `cudaMallocFromPoolAsync`: `len` elements on the device of `stream`, with unspecified values.
    ///
    /// Where memory has run out, that of buffers of communicators which were dropped is waited for while it is being freed, no
    /// longer than the default timeout or ten seconds.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::InvalidArgument`] for a length whose bytes cannot be counted; what CUDA says.
    pub fn uninit(stream: &Stream, len: usize) -> Result<Self> {
        Self::make("DeviceBuffer::uninit", stream, len)
    }

    fn make(operation: &'static str, stream: &Stream, len: usize) -> Result<Self> {
        let bytes =
            len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok()).ok_or_else(|| {
                let most = isize::MAX.unsigned_abs() / size_of::<T>();
                Error::argument(operation, "length", format_args!("at most {most}"), len)
            })?;
        Ok(Self { alloc: Allocation::new(operation, stream, bytes)?, len, _elements: PhantomData })
    }

    /// Wraps `cudaMallocFromPoolAsync` and `cudaMemsetAsync`: `len` zeros on the device of `stream`.
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
    pub fn as_raw(&self) -> *mut c_void {
        self.alloc.ptr()
    }

    /// All elements, to read.
    pub fn as_slice(&self) -> Slice<'_, T> {
        Slice::of(&self.alloc, self.len)
    }

    /// All elements, to write.
    pub fn as_slice_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut::of(&self.alloc, self.len)
    }

    /// The elements of `range`, to read.
    ///
    /// # Panics
    /// Where the range does not lie within the buffer.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_, T> {
        self.as_slice().slice(range)
    }

    /// The elements of `range`, to read.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the range does not lie within the buffer.
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
        self.as_slice().try_slice(range)
    }

    /// The elements of `range`, to write.
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
    /// # Errors
    /// [`Error::InvalidArgument`] where the range does not lie within the buffer.
    pub fn try_slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>> {
        self.as_slice_mut().into_range("SliceMut::try_slice_mut", &range)
    }

    /// The elements before `mid` and those from it on; see [`SliceMut::split_at_mut`].
    ///
    /// # Panics
    /// Where `mid` is greater than the length.
    #[track_caller]
    pub fn split_at_mut(&mut self, mid: usize) -> (SliceMut<'_, T>, SliceMut<'_, T>) {
        self.as_slice_mut().into_parts("SliceMut::split_at_mut", mid)
    }

    /// Takes the elements as they are, also where they come from an operation of a communicator that has failed or was
    /// aborted: copies of them to the host report that no more. Waits until that communicator has stopped.
    pub fn accept(&mut self) {
        self.as_slice_mut().accept();
    }

    /// Wraps `cudaMemcpyAsync`; see [`SliceMut::copy_from_slice`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_from_slice(&mut self, stream: &Stream, values: &[T]) -> Result<()> {
        self.as_slice_mut().copy_from_slice(stream, values)
    }

    /// Wraps `cudaMemcpyAsync`; see [`Slice::copy_to_slice`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_to_slice(&self, stream: &Stream, values: &mut [T]) -> Result<()> {
        self.as_slice().copy_to_slice(stream, values)
    }

    /// Wraps `cudaMemcpyAsync`; see [`Slice::copy_to_slice_within`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_to_slice_within(&self, stream: &Stream, values: &mut [T], timeout: Duration) -> Result<()> {
        self.as_slice().copy_to_slice_within(stream, values, timeout)
    }

    /// Wraps `cudaMemcpyAsync`; see [`Slice::to_vec`].
    ///
    /// # Errors
    /// As there.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        self.as_slice().to_vec(stream)
    }

    /// Wraps `cudaMemcpyAsync` and `cudaMemcpyPeerAsync`; see [`SliceMut::copy_from`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_from<'a>(&mut self, stream: &Stream, source: impl Into<Slice<'a, T>>) -> Result<()> {
        self.as_slice_mut().copy_from(stream, source)
    }

    /// Wraps `cudaMemcpyAsync`; see [`SliceMut::copy_from_pinned`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_from_pinned(&mut self, stream: &Stream, source: &PinnedBuffer<T>) -> Result<()> {
        self.as_slice_mut().copy_from_pinned(stream, source)
    }

    /// Wraps `cudaMemcpyAsync`; see [`Slice::copy_to_pinned`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_to_pinned(&self, stream: &Stream, target: &mut PinnedBuffer<T>) -> Result<()> {
        self.as_slice().copy_to_pinned(stream, target)
    }

    /// Wraps `cudaMemsetAsync` and its kin; see [`SliceMut::fill`].
    ///
    /// # Errors
    /// As there.
    pub fn fill(&mut self, stream: &Stream, value: T) -> Result<()> {
        self.as_slice_mut().fill(stream, value)
    }
}

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
        write!(f, "DeviceBuffer<{}>({} elements on {})", T::KIND, self.len, self.device())
    }
}

//! Parts of pinned buffers.

use super::pinned::PinnedBuffer;
use super::slice::{AsPinned, PinnedSlice};
use super::slice_mut::{AsPinnedMut, PinnedSliceMut};
use crate::cuda::memory::basics::chunks::Chunks;
use crate::cuda::memory::basics::range::or_panic;
use crate::element::Element;

impl<T: Element> PinnedBuffer<T> {
    /// The elements of `range`, for copies to read.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let pinned = PinnedBuffer::from_slice(&[1, 2, 3])?;
    /// let mut x = DeviceBuffer::<i32>::zeroed(&stream, 2)?;
    /// x.copy_from_pinned(&stream, pinned.slice(1..))?;
    /// assert_eq!(x.to_vec(&stream)?, [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where the range does not lie within the buffer.
    #[track_caller]
    pub fn slice(&self, range: impl std::ops::RangeBounds<usize>) -> PinnedSlice<'_, T> {
        self.view().slice(range)
    }

    /// The elements of `range`, for copies to write.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[5, 6])?;
    /// let mut pinned = PinnedBuffer::<i32>::new(3)?;
    /// x.copy_to_pinned(&stream, pinned.slice_mut(1..))?;
    /// assert_eq!(pinned.as_slice()?, [0, 5, 6]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where the range does not lie within the buffer.
    #[track_caller]
    pub fn slice_mut(&mut self, range: impl std::ops::RangeBounds<usize>) -> PinnedSliceMut<'_, T> {
        or_panic(self.view_mut().into_range("PinnedBuffer::slice_mut", &range))
    }

    /// The elements before `mid` and those from it on, for copies to write.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[5, 6])?;
    /// let mut pinned = PinnedBuffer::<i32>::new(4)?;
    /// let (front, back) = pinned.split_at_mut(2);
    /// x.copy_to_pinned(&stream, front)?;
    /// x.copy_to_pinned(&stream, back)?;
    /// assert_eq!(pinned.as_slice()?, [5, 6, 5, 6]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `mid` is greater than the length.
    #[track_caller]
    pub fn split_at_mut(&mut self, mid: usize) -> (PinnedSliceMut<'_, T>, PinnedSliceMut<'_, T>) {
        self.view_mut().into_split(mid)
    }

    /// Parts of `each` elements, for copies to read; the last one may be shorter.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let batches = PinnedBuffer::from_slice(&[1, 2, 3, 4])?;
    /// let mut x = DeviceBuffer::<i32>::uninit(&stream, 2)?;
    /// for batch in batches.chunks(2) {
    ///     x.copy_from_pinned(&stream, batch)?;
    ///     // What works on the batch is enqueued here.
    /// }
    /// assert_eq!(x.to_vec(&stream)?, [3, 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `each` is 0.
    #[track_caller]
    pub fn chunks(&self, each: usize) -> Chunks<PinnedSlice<'_, T>> {
        self.view().chunks(each)
    }

    /// Parts of `each` elements, for copies to write; the last one may be shorter.
    ///
    /// # Panics
    /// Where `each` is 0.
    #[track_caller]
    pub fn chunks_mut(&mut self, each: usize) -> Chunks<PinnedSliceMut<'_, T>> {
        self.view_mut().into_chunks(each)
    }
}

impl<'a, T: Element> AsPinned<'a, T> for &'a PinnedBuffer<T> {}
impl<'a, T: Element> AsPinned<'a, T> for &'a mut PinnedBuffer<T> {}
impl<'a, T: Element> AsPinnedMut<'a, T> for &'a mut PinnedBuffer<T> {}

impl<'a, T: Element> From<&'a PinnedBuffer<T>> for PinnedSlice<'a, T> {
    fn from(buffer: &'a PinnedBuffer<T>) -> Self {
        buffer.view()
    }
}

impl<'a, T: Element> From<&'a mut PinnedBuffer<T>> for PinnedSlice<'a, T> {
    fn from(buffer: &'a mut PinnedBuffer<T>) -> Self {
        buffer.view()
    }
}

impl<'a, T: Element> From<&'a mut PinnedBuffer<T>> for PinnedSliceMut<'a, T> {
    fn from(buffer: &'a mut PinnedBuffer<T>) -> Self {
        buffer.view_mut()
    }
}

//! Parts of memory of NCCL, and its bytes.

use super::comm_buffer::CommBuffer;
use crate::cuda::{Chunks, Cut, Slice, SliceMut};
use crate::element::Element;
use crate::error::{Error, Result};

impl<T: Element> CommBuffer<'_, T> {
    /// Parts of `each` elements, to read; the last one may be shorter.
    ///
    /// # Panics
    /// Where `each` is 0.
    #[track_caller]
    pub fn chunks(&self, each: usize) -> Chunks<Slice<'_, T>> {
        self.as_slice().chunks(each)
    }

    /// Parts of `each` elements, to write; the last one may be shorter. See [`DeviceBuffer::chunks_mut`](crate::DeviceBuffer::chunks_mut).
    ///
    /// # Panics
    /// Where `each` is 0.
    #[track_caller]
    pub fn chunks_mut(&mut self, each: usize) -> Chunks<SliceMut<'_, T>> {
        self.as_slice_mut().into_chunks(each)
    }

    /// Two buffers: of the elements before `mid`, and of those from it on; see [`DeviceBuffer::into_split`](crate::DeviceBuffer::into_split).
    /// Both lie in the same window, if it is one, and ranks that pass it to a collective pass the same part of it.
    ///
    /// # Panics
    /// Where `mid` is greater than the length.
    #[track_caller]
    pub fn into_split(self, mid: usize) -> (Self, Self) {
        assert!(mid <= self.len(), "CommBuffer::into_split: {mid} is beyond the end of {} elements", self.len());
        self.halves(mid)
    }

    /// Buffers of `each` elements, the last one of what is left; see [`CommBuffer::into_split`].
    ///
    /// # Panics
    /// Where `each` is 0.
    #[track_caller]
    pub fn into_chunks(self, each: usize) -> Chunks<Self> {
        Chunks::new(self, each)
    }

    /// Makes one buffer of two that were split from one, where the elements of `next` lie behind those of this one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where they do not; both are gone then.
    pub fn join(self, next: Self) -> Result<Self> {
        const EXPECTED: &str = "the buffer that this one was split from, behind it";
        self.with(next).ok_or_else(|| Error::argument("CommBuffer::join", "next", EXPECTED, "another one"))
    }

    /// The bytes of the elements, to read.
    pub fn as_bytes(&self) -> Slice<'_, u8> {
        self.as_slice().as_bytes()
    }

    /// The bytes of the elements, to write.
    pub fn as_bytes_mut(&mut self) -> SliceMut<'_, u8> {
        self.as_slice_mut().into_bytes()
    }
}

impl<T: Element> Cut for CommBuffer<'_, T> {
    fn count(&self) -> usize {
        self.len()
    }

    fn cut(self, mid: usize) -> (Self, Self) {
        self.halves(mid)
    }
}

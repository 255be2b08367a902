//! Parts of memory of NCCL, and its bytes.

use std::ops::RangeBounds;

use super::comm_buffer::CommBuffer;
use super::memory::kind::MemoryKind;
use crate::cuda::{Chunks, Cut, Slice, SliceMut};
use crate::element::Element;
use crate::error::{Error, Result};

impl<T: Element, K: MemoryKind> CommBuffer<'_, T, K> {
    /// The elements of `range`, to be read.
    ///
    /// # Panics
    /// Where the range does not lie within the buffer.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_, T> {
        self.as_slice().slice(range)
    }

    /// The elements of `range`, to be written.
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

    /// The elements before `mid` and those from it on, to be written.
    ///
    /// # Panics
    /// Where `mid` is greater than the length.
    #[track_caller]
    pub fn split_at_mut(&mut self, mid: usize) -> (SliceMut<'_, T>, SliceMut<'_, T>) {
        self.as_slice_mut().into_parts("SliceMut::split_at_mut", mid)
    }

    /// Parts of `each` elements, to read; the last one may be shorter.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let x = comm.alloc_from(&stream, &[1, 2, 3])?;
    /// let lengths: Vec<_> = x.chunks(2).map(|part| part.len()).collect();
    /// assert_eq!(lengths, [2, 1]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `each` is 0.
    #[track_caller]
    pub fn chunks(&self, each: usize) -> Chunks<Slice<'_, T>> {
        self.as_slice().chunks(each)
    }

    /// Parts of `each` elements, to write; the last one may be shorter. See [`DeviceBuffer::chunks_mut`](crate::DeviceBuffer::chunks_mut).
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream, group};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let own = comm.alloc_from(&stream, &[comm.rank() as u32; 10])?;
    /// let mut all = comm.alloc::<u32>(&stream, 10 * comm.size())?;
    /// group(|g| {
    ///     for (peer, part) in all.chunks_mut(10).enumerate() {
    ///         g.send(comm, &own, peer, &stream)?;
    ///         g.recv(comm, part, peer, &stream)?;
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(all.slice(..1).to_vec(&stream)?, [0]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use gpucomm::{Clique, Device, InPlace, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // One window for both, made by one call.
    /// let (mut weights, mut gradients) = comm.alloc::<f32>(&stream, 200)?.into_split(100);
    /// gradients.fill(&stream, 1.0)?;
    /// comm.all_reduce(InPlace(&mut gradients), ReduceOp::Sum, &stream)?;
    /// weights.copy_from(&stream, &gradients)?;
    /// assert_eq!(weights.join(gradients)?.len(), 200);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let layers: Vec<_> = comm.alloc::<f32>(&stream, 100)?.into_chunks(40).collect();
    /// assert_eq!(layers.iter().map(|layer| layer.len()).collect::<Vec<_>>(), [40, 40, 20]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `each` is 0.
    #[track_caller]
    pub fn into_chunks(self, each: usize) -> Chunks<Self> {
        Chunks::new(self, each)
    }

    /// Makes one buffer of two that were split from one, where the elements of `next` lie behind those of this one.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let (front, back) = comm.alloc_from(&stream, &[1, 2, 3])?.into_split(1);
    /// assert_eq!(front.join(back)?.to_vec(&stream)?, [1, 2, 3]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where they do not; both are gone then.
    pub fn join(self, next: Self) -> Result<Self> {
        const EXPECTED: &str = "the buffer that this one was split from, behind it";
        self.with(next).ok_or_else(|| Error::argument("CommBuffer::join", "next", EXPECTED, "another one"))
    }

    /// The bytes of the elements, to read.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut x = comm.alloc_from(&stream, &[1u32, 2])?;
    /// x.as_bytes_mut().slice_mut(..4).fill(&stream, 0xff)?;
    /// assert_eq!(x.as_bytes().slice(..4).to_vec(&stream)?, [0xff; 4]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_bytes(&self) -> Slice<'_, u8> {
        self.as_slice().as_bytes()
    }

    /// The bytes of the elements, to write.
    pub fn as_bytes_mut(&mut self) -> SliceMut<'_, u8> {
        self.as_slice_mut().into_bytes()
    }
}

impl<T: Element, K: MemoryKind> Cut for CommBuffer<'_, T, K> {
    fn count(&self) -> usize {
        self.len()
    }

    fn cut(self, mid: usize) -> (Self, Self) {
        self.halves(mid)
    }
}

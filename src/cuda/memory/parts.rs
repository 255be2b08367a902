//! Parts of buffers and views: chunks that are borrowed, and buffers that are split for good.

use super::basics::chunks::{Chunks, Cut};
use super::basics::range::or_panic;
use super::buffer::DeviceBuffer;
use super::host::pinned::PinnedBuffer;
use super::host::slice::{AsPinned, AsPinnedMut, PinnedSlice, PinnedSliceMut};
use super::slice::{Slice, SliceMut};
use crate::element::Element;
use crate::error::{Error, Result};

impl<'a, T: Element> Slice<'a, T> {
    /// Parts of `each` elements; the last one may be shorter.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4, 5])?;
    /// let lengths: Vec<_> = x.slice(..).chunks(2).map(|part| part.len()).collect();
    /// assert_eq!(lengths, [2, 2, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `each` is 0.
    #[track_caller]
    pub fn chunks(&self, each: usize) -> Chunks<Self> {
        Chunks::new(*self, each)
    }

    /// Parts of just `each` elements, and what is left over at the end.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4, 5])?;
    /// let (pairs, rest) = x.slice(..).chunks_exact(2);
    /// assert_eq!((pairs.len(), rest.to_vec(&stream)?), (2, vec![5]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `each` is 0.
    #[track_caller]
    pub fn chunks_exact(&self, each: usize) -> (Chunks<Self>, Self) {
        Chunks::exact(*self, each)
    }
}

impl<'a, T: Element> SliceMut<'a, T> {
    /// Parts of `each` elements, to read; the last one may be shorter.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::from_slice(&stream, &[1, 2, 3])?;
    /// let view = x.slice_mut(..);
    /// assert_eq!(view.chunks(2).next_back().expect("a part").to_vec(&stream)?, [3]);
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

    /// Parts of `each` elements, to write; the last one may be shorter.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<i32>::zeroed(&stream, 5)?;
    /// let mut view = x.slice_mut(1..);
    /// for (at, mut part) in view.chunks_mut(2).enumerate() {
    ///     part.fill(&stream, at as i32 + 1)?;
    /// }
    /// assert_eq!(x.to_vec(&stream)?, [0, 1, 1, 2, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `each` is 0.
    #[track_caller]
    pub fn chunks_mut(&mut self, each: usize) -> Chunks<SliceMut<'_, T>> {
        self.reborrow().into_chunks(each)
    }

    /// Parts of just `each` elements, to write, and what is left over at the end.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<i32>::zeroed(&stream, 5)?;
    /// let mut view = x.slice_mut(..);
    /// let (pairs, mut rest) = view.chunks_exact_mut(2);
    /// rest.fill(&stream, -1)?;
    /// pairs.enumerate().try_for_each(|(at, mut pair)| pair.fill(&stream, at as i32))?;
    /// assert_eq!(x.to_vec(&stream)?, [0, 0, 1, 1, -1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `each` is 0.
    #[track_caller]
    pub fn chunks_exact_mut(&mut self, each: usize) -> (Chunks<SliceMut<'_, T>>, SliceMut<'_, T>) {
        Chunks::exact(self.reborrow(), each)
    }

    /// Like [`SliceMut::chunks_mut`], for parts that live as long as the whole: such as those that a group borrows.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream, group};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut all = DeviceBuffer::<u32>::zeroed(&stream, 3 * comm.size())?;
    /// let own = DeviceBuffer::from_slice(&stream, &[comm.rank() as u32; 3])?;
    /// group(|g| {
    ///     // The parts live as long as the buffer is borrowed: longer than the group.
    ///     for (peer, part) in all.as_slice_mut().into_chunks(3).enumerate() {
    ///         g.send(comm, &own, peer, &stream)?;
    ///         g.recv(comm, part, peer, &stream)?;
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(all.to_vec(&stream)?[..3], [0; 3]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `each` is 0.
    #[track_caller]
    pub fn into_chunks(self, each: usize) -> Chunks<SliceMut<'a, T>> {
        Chunks::new(self, each)
    }
}

impl<T: Element> DeviceBuffer<T> {
    /// Parts of `each` elements, to read; the last one may be shorter.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4, 5])?;
    /// let sums = x.chunks(2).map(|part| Ok(part.to_vec(&stream)?.iter().sum())).collect::<gpucomm::Result<Vec<i32>>>()?;
    /// assert_eq!(sums, [3, 7, 5]);
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

    /// Parts of just `each` elements, to read, and what is left over at the end.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::<f32>::zeroed(&stream, 10)?;
    /// let (rows, left) = x.chunks_exact(3);
    /// assert_eq!((rows.len(), left.len()), (3, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `each` is 0.
    #[track_caller]
    pub fn chunks_exact(&self, each: usize) -> (Chunks<Slice<'_, T>>, Slice<'_, T>) {
        self.as_slice().chunks_exact(each)
    }

    /// Parts of `each` elements, to write; the last one may be shorter.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Result, Stream, group};
    /// # fn main() -> Result<()> {
    /// # let clique = Clique::init_all(&match Device::all() { Ok(devices) => devices, Err(_) => return Ok(()) })?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // Each rank sends its number to all, and receives theirs into parts of one buffer.
    /// let own = DeviceBuffer::from_slice(&stream, &[comm.rank() as u16; 10])?;
    /// let mut all = DeviceBuffer::<u16>::zeroed(&stream, 10 * comm.size())?;
    /// group(|g| {
    ///     for (peer, part) in all.chunks_mut(10).enumerate() {
    ///         g.send(comm, &own, peer, &stream)?;
    ///         g.recv(comm, part, peer, &stream)?;
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(all.slice(10 * comm.rank()..).to_vec(&stream)?[0], comm.rank() as u16);
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

    /// Parts of just `each` elements, to write, and what is left over at the end.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<f32>::zeroed(&stream, 10)?;
    /// let (rows, _left) = x.chunks_exact_mut(3);
    /// for (at, mut row) in rows.enumerate() {
    ///     row.fill(&stream, at as f32)?;
    /// }
    /// assert_eq!(x.slice(5..).to_vec(&stream)?, [1.0, 2.0, 2.0, 2.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `each` is 0.
    #[track_caller]
    pub fn chunks_exact_mut(&mut self, each: usize) -> (Chunks<SliceMut<'_, T>>, SliceMut<'_, T>) {
        Chunks::exact(self.as_slice_mut(), each)
    }

    /// Two buffers: of the elements before `mid`, and of those from it on. They can go to different threads, and the memory is freed when the last
    /// of its parts is gone.
    ///
    /// Order is kept for the memory as a whole: uses of different streams, where one of them writes, come one after the other on the device
    /// even if they are of different parts. What an operation that failed has left in one part, all of them
    /// [report](crate::cuda#failed-work), until they are [joined](DeviceBuffer::join) and overwritten, or accepted.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Device, DeviceBuffer, Stream};
    ///
    /// # if Device::count().is_err() { return Ok(()) }
    /// let stream = Stream::new(Device::new(0)?)?;
    /// let (mut left, mut right) = DeviceBuffer::<f32>::zeroed(&stream, 100)?.into_split(30);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| left.fill(&stream, 1.0).unwrap());
    ///     right.fill(&stream, 2.0)
    /// })?;
    /// let whole = left.join(right)?;
    /// assert_eq!(whole.slice(29..31).to_vec(&stream)?, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `mid` is greater than the length.
    #[track_caller]
    pub fn into_split(self, mid: usize) -> (Self, Self) {
        // SAFETY: the two show different elements, and this buffer is gone.
        let other = or_panic(unsafe { self.part("DeviceBuffer::into_split", &(mid..)) });
        (self.with_len(mid), other)
    }

    /// Buffers of `each` elements, the last one of what is left; see [`DeviceBuffer::into_split`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let parts = DeviceBuffer::<f32>::zeroed(&stream, 100)?.into_chunks(40);
    /// // Each is a buffer, which may be moved to a thread of its own.
    /// let lengths: Vec<_> = parts.map(|part: DeviceBuffer<f32>| part.len()).collect();
    /// assert_eq!(lengths, [40, 40, 20]);
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
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let (left, right) = DeviceBuffer::from_slice(&stream, &[1, 2, 3])?.into_split(1);
    /// assert_eq!(left.join(right)?.to_vec(&stream)?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where they do not; both are gone then.
    pub fn join(self, next: Self) -> Result<Self> {
        let (one, two) = (self.as_slice().region(), next.as_slice().region());
        if !std::ptr::eq(one.alloc, two.alloc) || two.address != one.address.add(one.bytes) {
            const EXPECTED: &str = "the buffer that this one was split from, behind it";
            return Err(Error::argument("DeviceBuffer::join", "next", EXPECTED, "another one"));
        }
        let len = self.len() + next.len();
        Ok(self.with_len(len))
    }
}

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

impl<T: Element> Cut for Slice<'_, T> {
    fn count(&self) -> usize {
        self.len()
    }

    fn cut(self, mid: usize) -> (Self, Self) {
        self.split_at(mid)
    }
}

impl<T: Element> Cut for SliceMut<'_, T> {
    fn count(&self) -> usize {
        self.len()
    }

    fn cut(self, mid: usize) -> (Self, Self) {
        self.into_split(mid)
    }
}

impl<T: Element> Cut for DeviceBuffer<T> {
    fn count(&self) -> usize {
        self.len()
    }

    fn cut(self, mid: usize) -> (Self, Self) {
        self.into_split(mid)
    }
}

//! Chunks of views.

use super::slice::Slice;
use super::slice_mut::SliceMut;
use crate::cuda::memory::basics::chunks::{Chunks, Cut};
use crate::element::Element;

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

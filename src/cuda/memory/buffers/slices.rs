//! Parts of a buffer that are borrowed: slices and chunks.

use std::ops::RangeBounds;

use super::buffer::DeviceBuffer;
use crate::cuda::memory::basics::chunks::Chunks;
use crate::cuda::memory::views::slice::Slice;
use crate::cuda::memory::views::slice_mut::SliceMut;
use crate::element::Element;
use crate::error::Result;

impl<T: Element> DeviceBuffer<T> {
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
}

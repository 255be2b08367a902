//! Buffers that are split for good, and joined again.

use super::buffer::DeviceBuffer;
use crate::cuda::memory::basics::chunks::{Chunks, Cut};
use crate::cuda::memory::basics::range::or_panic;
use crate::element::Element;
use crate::error::{Error, Result};

impl<T: Element> DeviceBuffer<T> {
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

impl<T: Element> Cut for DeviceBuffer<T> {
    fn count(&self) -> usize {
        self.len()
    }

    fn cut(self, mid: usize) -> (Self, Self) {
        self.into_split(mid)
    }
}

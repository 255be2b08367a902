//! What is copied to a buffer and from it.

use std::time::Duration;

use super::buffer::DeviceBuffer;
use crate::cuda::memory::host::slice::AsPinned;
use crate::cuda::memory::host::slice_mut::AsPinnedMut;
use crate::cuda::memory::views::slice::AsSlice;
#[cfg(doc)]
use crate::cuda::memory::views::slice::Slice;
#[cfg(doc)]
use crate::cuda::memory::views::slice_mut::SliceMut;
use crate::cuda::order::stream::Stream;
use crate::element::Element;
use crate::error::Result;

impl<T: Element> DeviceBuffer<T> {
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

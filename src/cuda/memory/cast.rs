//! The same memory as elements of another type.
//!
//! Device memory is never a Rust place: whatever its bytes are, they become values when they are copied to the host, and are looked at then
//! where not all bit patterns are.

use super::allocated::region::Region;
use super::buffers::buffer::DeviceBuffer;
use super::views::slice::Slice;
use super::views::slice_mut::SliceMut;
use crate::element::{self, Element, must_fit};
use crate::error::{Error, Result};

/// How many elements of `U` a region of elements of `T` is.
fn count<T: Element, U: Element>(operation: &'static str, region: Region<'_>) -> Result<usize> {
    must_fit::<U>();
    let wrong = |expected: String, got: String| Error::argument(operation, "view", expected, got);
    if !region.bytes.is_multiple_of(size_of::<U>()) {
        let expected = format!("a whole number of {}, of {} bytes each", element::name::<U>(), size_of::<U>());
        let (len, name) = (region.bytes / size_of::<T>(), element::name::<T>());
        return Err(wrong(expected, format!("{len} {name}, {} bytes", region.bytes)));
    }
    if !region.ptr().addr().is_multiple_of(align_of::<U>()) {
        let expected = format!("an address that is a multiple of {}, for {}", align_of::<U>(), element::name::<U>());
        return Err(wrong(expected, format!("{:p}", region.ptr())));
    }
    Ok(region.bytes / size_of::<U>())
}

impl<'a, T: Element> Slice<'a, T> {
    /// The bytes of the elements.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[0x0102u16, 0x0304])?;
    /// assert_eq!(x.slice(1..).as_bytes().to_vec(&stream)?, 0x0304u16.to_ne_bytes());
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_bytes(&self) -> Slice<'a, u8> {
        let region = self.region();
        Slice::of(region.alloc, region.address, region.bytes)
    }

    /// The same bytes as elements of another type.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Device, DeviceBuffer, Stream};
    ///
    /// # if Device::count().is_err() { return Ok(()) }
    /// let stream = Stream::new(Device::new(0)?)?;
    /// let buffer = DeviceBuffer::from_slice(&stream, &[1.0_f32, -2.0])?;
    /// assert_eq!(buffer.as_slice().cast::<u32>()?.to_vec(&stream)?, [0x3f80_0000, 0xc000_0000]);
    /// assert!(buffer.as_slice().cast::<[u16; 3]>().is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the bytes are no whole number of them, or do not lie where they may.
    pub fn cast<U: Element>(&self) -> Result<Slice<'a, U>> {
        let region = self.region();
        let len = count::<T, U>("Slice::cast", region)?;
        Ok(Slice::of(region.alloc, region.address, len))
    }
}

impl<'a, T: Element> SliceMut<'a, T> {
    /// The bytes of the elements, to read.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<f32>::zeroed(&stream, 10)?;
    /// let mut view = x.slice_mut(2..4);
    /// assert_eq!(view.as_bytes().len(), 8);
    /// view.as_bytes_mut().fill(&stream, 0xff)?;
    /// assert!(x.to_vec(&stream)?[2].is_nan());
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_bytes(&self) -> Slice<'_, u8> {
        self.as_slice().as_bytes()
    }

    /// The bytes of the elements, to write.
    pub fn as_bytes_mut(&mut self) -> SliceMut<'_, u8> {
        self.reborrow().into_bytes()
    }

    /// As [`SliceMut::as_bytes_mut`], for as long as the memory is borrowed.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// // Bytes that live as long as the buffer is borrowed, not only as long as the view.
    /// let mut bytes = x.slice_mut(1..2).into_bytes();
    /// bytes.fill(&stream, 1)?;
    /// assert_eq!(x.to_vec(&stream)?, [0, 0x0101_0101, 0, 0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_bytes(self) -> SliceMut<'a, u8> {
        let region = self.into_region();
        SliceMut::of(region.alloc, region.address, region.bytes)
    }

    /// The same bytes as elements of another type, to write; see [`Slice::cast`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0])?;
    /// let mut view = x.as_slice_mut();
    /// view.cast_mut::<u32>()?.slice_mut(..1).fill(&stream, 0x4040_0000)?;
    /// assert_eq!(x.to_vec(&stream)?, [3.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn cast_mut<U: Element>(&mut self) -> Result<SliceMut<'_, U>> {
        self.reborrow().cast_for("SliceMut::cast_mut")
    }

    /// As [`SliceMut::cast_mut`], for as long as the memory is borrowed.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<[f32; 2]>::zeroed(&stream, 3)?;
    /// let mut plain = x.as_slice_mut().into_cast::<f32>()?;
    /// plain.slice_mut(1..2).fill(&stream, 1.0)?;
    /// assert_eq!(x.to_vec(&stream)?, [[0.0, 1.0], [0.0; 2], [0.0; 2]]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn into_cast<U: Element>(self) -> Result<SliceMut<'a, U>> {
        self.cast_for("SliceMut::into_cast")
    }

    fn cast_for<U: Element>(self, operation: &'static str) -> Result<SliceMut<'a, U>> {
        let region = self.into_region();
        let len = count::<T, U>(operation, region)?;
        Ok(SliceMut::of(region.alloc, region.address, len))
    }
}

impl<T: Element> DeviceBuffer<T> {
    /// The bytes of the elements, to read.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[0x0102u16])?;
    /// assert_eq!(x.as_bytes().to_vec(&stream)?, 0x0102u16.to_ne_bytes());
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_bytes(&self) -> Slice<'_, u8> {
        self.as_slice().as_bytes()
    }

    /// The bytes of the elements, to write.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<u32>::zeroed(&stream, 2)?;
    /// x.as_bytes_mut().slice_mut(4..).copy_from_slice(&stream, &5u32.to_ne_bytes())?;
    /// assert_eq!(x.to_vec(&stream)?, [0, 5]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_bytes_mut(&mut self) -> SliceMut<'_, u8> {
        self.as_slice_mut().into_bytes()
    }

    /// The same buffer with elements of another type; see [`Slice::cast`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let bytes = DeviceBuffer::<u8>::zeroed(&stream, 4000)?;
    /// let x: DeviceBuffer<f32> = bytes.into_cast()?;
    /// assert_eq!(x.len(), 1000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there; the buffer is gone then.
    pub fn into_cast<U: Element>(self) -> Result<DeviceBuffer<U>> {
        let len = count::<T, U>("DeviceBuffer::into_cast", self.as_slice().region())?;
        Ok(self.with_len(len))
    }
}

//! The same memory as elements of another type.
//!
//! Device memory is never a Rust place: whatever its bytes are, they become values when they are copied to the host, and are looked at then
//! where not all bit patterns are.

use super::buffer::DeviceBuffer;
use super::region::Region;
use super::slice::{Slice, SliceMut};
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
    pub fn as_bytes(&self) -> Slice<'_, u8> {
        self.as_slice().as_bytes()
    }

    /// The bytes of the elements, to write.
    pub fn as_bytes_mut(&mut self) -> SliceMut<'_, u8> {
        self.reborrow().into_bytes()
    }

    /// As [`SliceMut::as_bytes_mut`], for as long as the memory is borrowed.
    pub fn into_bytes(self) -> SliceMut<'a, u8> {
        let region = self.into_region();
        SliceMut::of(region.alloc, region.address, region.bytes)
    }

    /// The same bytes as elements of another type, to write; see [`Slice::cast`].
    ///
    /// # Errors
    /// As there.
    pub fn cast_mut<U: Element>(&mut self) -> Result<SliceMut<'_, U>> {
        self.reborrow().cast_for("SliceMut::cast_mut")
    }

    /// As [`SliceMut::cast_mut`], for as long as the memory is borrowed.
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
    pub fn as_bytes(&self) -> Slice<'_, u8> {
        self.as_slice().as_bytes()
    }

    /// The bytes of the elements, to write.
    pub fn as_bytes_mut(&mut self) -> SliceMut<'_, u8> {
        self.as_slice_mut().into_bytes()
    }

    /// The same buffer with elements of another type; see [`Slice::cast`].
    ///
    /// # Errors
    /// As there; the buffer is gone then.
    pub fn into_cast<U: Element>(self) -> Result<DeviceBuffer<U>> {
        let len = count::<T, U>("DeviceBuffer::into_cast", self.as_slice().region())?;
        Ok(self.with_len(len))
    }
}

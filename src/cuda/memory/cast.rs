//! The same memory as elements of another type.
//!
//! Device memory is never a Rust place: whatever its bytes are, they become values when they are copied to the host, and are looked at then
//! where not all bit patterns are.

use super::allocated::region::Region;
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
    /// The same bytes as elements of another type, for `operation`.
    pub(crate) fn cast_for<U: Element>(self, operation: &'static str) -> Result<Slice<'a, U>> {
        let region = self.region();
        let len = count::<T, U>(operation, region)?;
        Ok(Slice::of(region.alloc, region.address, len))
    }
}

impl<'a, T: Element> SliceMut<'a, T> {
    /// Like [`cast_mut`](Self::cast_mut), for as long as the memory is borrowed.
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
    /// The errors of [`cast_mut`](Self::cast_mut).
    pub fn into_cast<U: Element>(self) -> Result<SliceMut<'a, U>> {
        self.cast_for("SliceMut::into_cast")
    }

    pub(crate) fn cast_for<U: Element>(self, operation: &'static str) -> Result<SliceMut<'a, U>> {
        let region = self.into_region();
        let len = count::<T, U>(operation, region)?;
        Ok(SliceMut::of(region.alloc, region.address, len))
    }
}

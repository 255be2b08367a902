//! Views of device memory, to read.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use crate::cuda::devices::device::Device;
use crate::cuda::memory::allocated::allocation::Allocation;
use crate::cuda::memory::allocated::region::Region;
use crate::cuda::memory::basics::address::Address;
use crate::cuda::memory::basics::range::{or_panic, resolve};
use crate::element::{self, Element};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

/// A view of elements in device memory, to read: what `&[T]` is to host memory, without access from the host.
///
/// ```
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # use gpucomm::cuda::Slice;
/// # fn main() -> gpucomm::Result<()> {
/// # let stream = Stream::new(Device::new(0)?)?;
/// fn sum(values: Slice<'_, f32>, stream: &Stream) -> gpucomm::Result<f32> {
///     assert_eq!(values.device(), stream.device());
///     Ok(if values.is_empty() { 0.0 } else { values.to_vec(stream)?.iter().sum() })
/// }
///
/// let x = DeviceBuffer::from_slice(&stream, &[1.0, 2.0, 3.0])?;
/// let (front, back) = x.as_slice().split_at(1);
/// assert_eq!((sum(front, &stream)?, sum(back, &stream)?, back.len()), (1.0, 5.0, 2));
/// # Ok(())
/// # }
/// ```
pub struct Slice<'a, T: Element> {
    alloc: &'a Allocation,
    address: Address,
    len: usize,
    _elements: PhantomData<&'a [T]>,
}

/// What can be given as a [`Slice`]: device memory to read from, whole or in part.
///
/// ```
/// # use gpucomm::cuda::AsSlice;
/// # use gpucomm::{Device, DeviceBuffer, Result, Stream};
/// fn bytes<'a>(memory: impl AsSlice<'a, f32>) -> usize {
///     4 * memory.into().len()
/// }
/// # fn main() -> Result<()> {
/// # let stream = Stream::new(Device::new(0)?)?;
/// let buffer = DeviceBuffer::<f32>::zeroed(&stream, 10)?;
/// assert_eq!((bytes(&buffer), bytes(buffer.slice(2..5))), (40, 12));
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no device memory, with elements of type `{T}`, to read from",
    label = "expected `&buffer`, or a part such as `buffer.slice(..8)`",
    note = "values of the host get to a device by `DeviceBuffer::from_slice(&stream, &values)`, and those of a `PinnedBuffer` by \
            `copy_from_pinned`"
)]
pub trait AsSlice<'a, T: Element>: Into<Slice<'a, T>> {}

impl<'a, T: Element> Slice<'a, T> {
    /// `len` elements of `alloc`, shown at `address`.
    #[inline]
    pub(crate) fn of(alloc: &'a Allocation, address: Address, len: usize) -> Self {
        debug_assert!(len * size_of::<T>() <= alloc.bytes());
        Self { alloc, address, len, _elements: PhantomData }
    }

    /// How many elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that holds them.
    #[inline]
    pub fn device(&self) -> Device {
        self.alloc.device()
    }

    /// The address on the device; null where the whole buffer is empty. For calls of other libraries, which have to be
    /// ordered against the uses of the buffer by yourself.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::<f32>::zeroed(&stream, 10)?;
    /// assert_eq!(x.slice(5..).as_raw().addr(), x.as_raw().addr() + 5 * size_of::<f32>());
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_raw(&self) -> *const c_void {
        self.region().ptr()
    }

    #[inline]
    pub(crate) fn region(&self) -> Region<'a> {
        Region { alloc: self.alloc, address: self.address, bytes: self.len * size_of::<T>() }
    }

    /// The elements of `range`.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4])?;
    /// assert_eq!(x.slice(1..).slice(1..2).to_vec(&stream)?, [3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where the range does not lie within this view.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        or_panic(self.slice_for("Slice::slice", &range))
    }

    /// The elements of `range`.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4])?;
    /// assert!(x.slice(1..).try_slice(..4).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the range does not lie within this view.
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        self.slice_for("Slice::try_slice", &range)
    }

    pub(crate) fn slice_for(&self, operation: &'static str, range: &impl RangeBounds<usize>) -> Result<Self> {
        let range = resolve(operation, range, self.len)?;
        Ok(Self { address: self.address.add(range.start * size_of::<T>()), len: range.len(), ..*self })
    }

    /// The elements before `mid` and those from it on.
    ///
    /// # Panics
    /// Where `mid` is greater than the length.
    #[track_caller]
    pub fn split_at(&self, mid: usize) -> (Self, Self) {
        const OPERATION: &str = "Slice::split_at";
        (or_panic(self.slice_for(OPERATION, &(..mid))), or_panic(self.slice_for(OPERATION, &(mid..))))
    }
}

impl<T: Element> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element> Copy for Slice<'_, T> {}

impl<'a, T: Element> AsSlice<'a, T> for Slice<'a, T> {}
impl<'a, T: Element> AsSlice<'a, T> for &Slice<'a, T> {}

impl<'a, T: Element> From<&Slice<'a, T>> for Slice<'a, T> {
    fn from(slice: &Slice<'a, T>) -> Self {
        *slice
    }
}

impl<T: Element> std::fmt::Debug for Slice<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slice<{}>({} elements on {})", element::name::<T>(), self.len, self.device())
    }
}

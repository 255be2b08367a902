//! Views of pinned memory, to write.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use super::memory::{Copies, PinnedMemory};
use super::slice::{AsPinned, PinnedSlice, bytes};
use crate::cuda::memory::basics::address::Address;
use crate::cuda::memory::basics::chunks::{Chunks, Cut};
use crate::cuda::memory::basics::range::{or_panic, resolve};
use crate::cuda::memory::basics::values;
use crate::element::{self, Element};
use crate::error::Result;

/// A part of a [`PinnedBuffer`](crate::PinnedBuffer), to write: what copies from a device take.
///
/// Parts of one buffer may be used at the same time, on different streams and threads. Who looks at a part from the host waits for the
/// copies of the whole buffer, because order is kept for that.
///
/// ```
/// # use gpucomm::PinnedBuffer;
/// # fn main() -> gpucomm::Result<()> {
/// let mut pinned = PinnedBuffer::<u16>::new(4)?;
/// let mut part = pinned.slice_mut(1..3);
/// assert_eq!((part.len(), part.is_empty()), (2, false));
/// part.as_mut_slice()?.copy_from_slice(&[5, 6]);
/// assert_eq!(part.slice(1..).as_slice()?, [6]);
/// assert_eq!(pinned.as_slice()?, [0, 5, 6, 0]);
/// # Ok(())
/// # }
/// ```
pub struct PinnedSliceMut<'a, T: Element> {
    memory: &'a PinnedMemory,
    address: Address,
    len: usize,
    _elements: PhantomData<&'a mut [T]>,
}

/// What can be given as a [`PinnedSliceMut`]: pinned memory to write to, whole or in part.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no pinned memory, with elements of type `{T}`, to write to",
    label = "expected `&mut pinned`, or a part such as `pinned.slice_mut(..8)`",
    note = "values get to other memory of the host by `copy_to_slice` and `to_vec`"
)]
pub trait AsPinnedMut<'a, T: Element>: Into<PinnedSliceMut<'a, T>> {}

impl<'a, T: Element> PinnedSliceMut<'a, T> {
    /// `len` elements of `memory`, at `address`, which nobody else may show at the same time.
    pub(crate) fn of(memory: &'a PinnedMemory, address: Address, len: usize) -> Self {
        Self { memory, address, len, _elements: PhantomData }
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address on the host; see [`PinnedBuffer::as_raw`](crate::PinnedBuffer::as_raw).
    ///
    /// ```
    /// # use gpucomm::PinnedBuffer;
    /// # fn main() -> gpucomm::Result<()> {
    /// let mut pinned = PinnedBuffer::<u16>::new(2)?;
    /// let first = pinned.as_raw().addr();
    /// assert_eq!(pinned.slice_mut(1..).as_raw().addr(), first + 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_raw(&self) -> *mut c_void {
        self.address.ptr()
    }

    pub(crate) fn memory(&self) -> &'a PinnedMemory {
        self.memory
    }

    /// Whether these are all bytes of the buffer.
    pub(crate) fn is_whole(&self) -> bool {
        self.len * size_of::<T>() == self.memory.bytes()
    }

    /// The same view for a shorter time, so that this one is still there afterwards.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # use gpucomm::cuda::PinnedSliceMut;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1, 2])?;
    /// let mut pinned = PinnedBuffer::<i32>::new(2)?;
    /// let mut part: PinnedSliceMut<'_, i32> = pinned.slice_mut(..);
    /// // The copy takes a view by value: this one is still there afterwards.
    /// x.copy_to_pinned(&stream, part.reborrow())?;
    /// part.as_mut_slice()?[0] = 5;
    /// assert_eq!(pinned.as_slice()?, [5, 2]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reborrow(&mut self) -> PinnedSliceMut<'_, T> {
        PinnedSliceMut::of(self.memory, self.address, self.len)
    }

    /// The same elements, to read.
    pub(crate) fn view(&self) -> PinnedSlice<'_, T> {
        PinnedSlice::of(self.memory, self.address, self.len)
    }

    /// The elements of `range`, to read.
    ///
    /// # Panics
    /// Where the range does not lie within this view.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> PinnedSlice<'_, T> {
        self.view().slice(range)
    }

    /// The elements of `range`.
    ///
    /// ```
    /// # use gpucomm::PinnedBuffer;
    /// # fn main() -> gpucomm::Result<()> {
    /// let mut pinned = PinnedBuffer::<u8>::new(4)?;
    /// let mut part = pinned.slice_mut(1..);
    /// part.slice_mut(1..).as_mut_slice()?.fill(7);
    /// assert_eq!(pinned.as_slice()?, [0, 0, 7, 7]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where the range does not lie within this view.
    #[track_caller]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> PinnedSliceMut<'_, T> {
        or_panic(self.reborrow().into_range("PinnedSliceMut::slice_mut", &range))
    }

    /// The elements of `range`, for `operation`.
    pub(crate) fn into_range(self, operation: &'static str, range: &impl RangeBounds<usize>) -> Result<Self> {
        let range = resolve(operation, range, self.len)?;
        Ok(Self { address: self.address.add(range.start * size_of::<T>()), len: range.len(), ..self })
    }

    /// The elements before `mid` and those from it on, for as long as the whole.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let (x, y) = (DeviceBuffer::from_slice(&stream, &[1])?, DeviceBuffer::from_slice(&stream, &[2, 3])?);
    /// let mut pinned = PinnedBuffer::<i32>::new(3)?;
    /// let (front, back) = pinned.slice_mut(..).into_split(1);
    /// x.copy_to_pinned(&stream, front)?;
    /// y.copy_to_pinned(&stream, back)?;
    /// assert_eq!(pinned.as_slice()?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `mid` is greater than the length.
    #[track_caller]
    pub fn into_split(self, mid: usize) -> (Self, Self) {
        const OPERATION: &str = "PinnedSliceMut::into_split";
        let other = Self { ..self };
        (or_panic(self.into_range(OPERATION, &(..mid))), or_panic(other.into_range(OPERATION, &(mid..))))
    }

    /// Parts of `each` elements, for as long as the whole; the last one may be shorter.
    ///
    /// ```
    /// # use gpucomm::PinnedBuffer;
    /// # fn main() -> gpucomm::Result<()> {
    /// let mut pinned = PinnedBuffer::<u8>::new(5)?;
    /// for (at, mut part) in pinned.slice_mut(1..).into_chunks(2).enumerate() {
    ///     part.as_mut_slice()?.fill(at as u8 + 1);
    /// }
    /// assert_eq!(pinned.as_slice()?, [0, 1, 1, 2, 2]);
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

    /// The bytes of the elements. Whatever is written there, elements are looked at before they are handed out.
    ///
    /// ```
    /// # use gpucomm::PinnedBuffer;
    /// # fn main() -> gpucomm::Result<()> {
    /// let mut pinned = PinnedBuffer::from_slice(&[true, true])?;
    /// // What is no value of the type is overwritten as bytes.
    /// pinned.slice_mut(..).into_bytes().as_mut_slice()?.fill(0);
    /// assert_eq!(pinned.as_slice()?, [false, false]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_bytes(self) -> PinnedSliceMut<'a, u8> {
        PinnedSliceMut::of(self.memory, self.address, self.len * size_of::<T>())
    }

    /// The elements, after the copies to and from the buffer are done. Waits for those, no longer than the default timeout.
    ///
    /// # Errors
    /// As [`PinnedBuffer::as_mut_slice`](crate::PinnedBuffer::as_mut_slice).
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        self.reborrow().write("PinnedSliceMut::as_mut_slice")
    }

    /// The elements, for `operation`.
    pub(crate) fn write(self, operation: &'static str) -> Result<&'a mut [T]> {
        self.memory.check_access(operation)?;
        self.write_alone(operation)
    }

    /// As [`PinnedSliceMut::write`], also of memory that belongs to a graph, which is not launched as long as the elements are there.
    pub(crate) fn write_alone(self, operation: &'static str) -> Result<&'a mut [T]> {
        self.memory.wait(operation, Copies::Of, self.len)?;
        if self.len == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as in `PinnedSlice::read`; the borrow is exclusive, and no device uses the memory.
        values::check::<T>(operation, unsafe { bytes(self.address, self.len * size_of::<T>()) })?;
        // SAFETY: as above.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.address.ptr().cast(), self.len) })
    }
}

impl<T: Element> Cut for PinnedSliceMut<'_, T> {
    fn count(&self) -> usize {
        self.len
    }

    fn cut(self, mid: usize) -> (Self, Self) {
        self.into_split(mid)
    }
}

impl<'a, T: Element> AsPinned<'a, T> for &'a PinnedSliceMut<'_, T> {}
impl<'a, T: Element> AsPinnedMut<'a, T> for PinnedSliceMut<'a, T> {}
impl<'a, T: Element> AsPinnedMut<'a, T> for &'a mut PinnedSliceMut<'_, T> {}

impl<'a, T: Element> From<&'a PinnedSliceMut<'_, T>> for PinnedSlice<'a, T> {
    fn from(slice: &'a PinnedSliceMut<'_, T>) -> Self {
        slice.view()
    }
}

impl<'a, T: Element> From<&'a mut PinnedSliceMut<'_, T>> for PinnedSliceMut<'a, T> {
    fn from(slice: &'a mut PinnedSliceMut<'_, T>) -> Self {
        slice.reborrow()
    }
}

impl<T: Element> fmt::Debug for PinnedSliceMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedSliceMut<{}>({} elements)", element::name::<T>(), self.len)
    }
}

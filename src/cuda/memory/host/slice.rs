//! Views of pinned memory, to read.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use super::memory::{Copies, PinnedMemory};
use crate::cuda::memory::basics::address::Address;
use crate::cuda::memory::basics::chunks::{Chunks, Cut};
use crate::cuda::memory::basics::range::{or_panic, resolve};
use crate::cuda::memory::basics::values;
use crate::element::{self, Element};
use crate::error::Result;

/// A part of a [`PinnedBuffer`](crate::PinnedBuffer), to read: what copies to a device take.
///
/// ```
/// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let stream = Stream::new(Device::new(0)?)?;
/// let pinned = PinnedBuffer::from_slice(&[1u16, 2, 3, 4, 5])?;
/// let part = pinned.slice(1..);
/// assert_eq!((part.len(), part.is_empty(), part.as_slice()?), (4, false, &[2, 3, 4, 5][..]));
/// let mut x = DeviceBuffer::<u16>::zeroed(&stream, 2)?;
/// for pair in part.chunks(2) {
///     x.copy_from_pinned(&stream, pair)?;
/// }
/// assert_eq!(x.to_vec(&stream)?, [4, 5]);
/// # Ok(())
/// # }
/// ```
pub struct PinnedSlice<'a, T: Element> {
    memory: &'a PinnedMemory,
    address: Address,
    len: usize,
    _elements: PhantomData<&'a [T]>,
}

/// What can be given as a [`PinnedSlice`]: pinned memory to read from, whole or in part.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no pinned memory, with elements of type `{T}`, to read from",
    label = "expected `&pinned`, or a part such as `pinned.slice(..8)`",
    note = "values of other memory of the host get to a device by `copy_from_slice`"
)]
pub trait AsPinned<'a, T: Element>: Into<PinnedSlice<'a, T>> {}

impl<'a, T: Element> PinnedSlice<'a, T> {
    /// `len` elements of `memory`, at `address`.
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
    /// let pinned = PinnedBuffer::from_slice(&[1u16, 2])?;
    /// assert_eq!(pinned.slice(1..).as_raw().addr(), pinned.as_raw().addr() + 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_raw(&self) -> *const c_void {
        self.address.ptr()
    }

    pub(crate) fn memory(&self) -> &'a PinnedMemory {
        self.memory
    }

    /// The elements of `range`.
    ///
    /// ```
    /// # use gpucomm::PinnedBuffer;
    /// # fn main() -> gpucomm::Result<()> {
    /// let pinned = PinnedBuffer::from_slice(&[1, 2, 3, 4])?;
    /// assert_eq!(pinned.slice(1..).slice(1..).as_slice()?, [3, 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where the range does not lie within this view.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        or_panic(self.part("PinnedSlice::slice", &range))
    }

    /// The elements of `range`.
    ///
    /// ```
    /// # use gpucomm::PinnedBuffer;
    /// # fn main() -> gpucomm::Result<()> {
    /// let pinned = PinnedBuffer::from_slice(&[1, 2, 3, 4])?;
    /// assert_eq!(pinned.slice(1..).try_slice(2..)?.as_slice()?, [4]);
    /// assert!(pinned.slice(1..).try_slice(..4).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) where the range does not lie within this view.
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        self.part("PinnedSlice::try_slice", &range)
    }

    fn part(&self, operation: &'static str, range: &impl RangeBounds<usize>) -> Result<Self> {
        let range = resolve(operation, range, self.len)?;
        Ok(Self { address: self.address.add(range.start * size_of::<T>()), len: range.len(), ..*self })
    }

    /// The elements before `mid` and those from it on.
    ///
    /// ```
    /// # use gpucomm::PinnedBuffer;
    /// # fn main() -> gpucomm::Result<()> {
    /// let pinned = PinnedBuffer::from_slice(&[1, 2, 3])?;
    /// let (front, back) = pinned.slice(..).split_at(1);
    /// assert_eq!((front.as_slice()?, back.as_slice()?), (&[1][..], &[2, 3][..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `mid` is greater than the length.
    #[track_caller]
    pub fn split_at(&self, mid: usize) -> (Self, Self) {
        const OPERATION: &str = "PinnedSlice::split_at";
        (or_panic(self.part(OPERATION, &(..mid))), or_panic(self.part(OPERATION, &(mid..))))
    }

    /// Parts of `each` elements; the last one may be shorter.
    ///
    /// # Panics
    /// Where `each` is 0.
    #[track_caller]
    pub fn chunks(&self, each: usize) -> Chunks<Self> {
        Chunks::new(*self, each)
    }

    /// The bytes of the elements.
    ///
    /// ```
    /// # use gpucomm::PinnedBuffer;
    /// # fn main() -> gpucomm::Result<()> {
    /// let pinned = PinnedBuffer::from_slice(&[1u32, 2])?;
    /// assert_eq!(pinned.slice(1..).as_bytes().as_slice()?, 2u32.to_ne_bytes());
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_bytes(&self) -> PinnedSlice<'a, u8> {
        PinnedSlice::of(self.memory, self.address, self.len * size_of::<T>())
    }

    /// The elements, after the copies to the buffer are done. Waits for those, no longer than the default timeout.
    ///
    /// # Errors
    /// As [`PinnedBuffer::as_slice`](crate::PinnedBuffer::as_slice).
    pub fn as_slice(&self) -> Result<&'a [T]> {
        self.read("PinnedSlice::as_slice")
    }

    /// The elements, for `operation`.
    pub(crate) fn read(self, operation: &'static str) -> Result<&'a [T]> {
        self.memory.check_access(operation)?;
        self.read_alone(operation)
    }

    /// As [`PinnedSlice::read`], also of memory that belongs to a graph, which is not launched as long as the elements are there.
    pub(crate) fn read_alone(self, operation: &'static str) -> Result<&'a [T]> {
        self.memory.wait(operation, Copies::To, self.len)?;
        if self.len == 0 {
            return Ok(&[]);
        }
        // SAFETY: bytes of live memory, initialised when it was allocated. Copies to them need an exclusive borrow, and the earlier ones are
        // done.
        values::check::<T>(operation, unsafe { bytes(self.address, self.len * size_of::<T>()) })?;
        // SAFETY: the same bytes as elements: any bit pattern is one, or was looked at. CUDA's memory begins at a multiple of 256, above
        // which no element is aligned, and views lie whole elements behind that, or were checked.
        Ok(unsafe { std::slice::from_raw_parts(self.address.ptr().cast(), self.len) })
    }
}

/// # Safety
/// So many initialised bytes lie at the address, which nobody writes to while they are borrowed.
pub(super) unsafe fn bytes<'a>(address: Address, bytes: usize) -> &'a [u8] {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(address.ptr().cast(), bytes) }
}

impl<T: Element> Cut for PinnedSlice<'_, T> {
    fn count(&self) -> usize {
        self.len
    }

    fn cut(self, mid: usize) -> (Self, Self) {
        self.split_at(mid)
    }
}

impl<T: Element> Clone for PinnedSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element> Copy for PinnedSlice<'_, T> {}

impl<'a, T: Element> AsPinned<'a, T> for PinnedSlice<'a, T> {}
impl<'a, T: Element> AsPinned<'a, T> for &PinnedSlice<'a, T> {}

impl<'a, T: Element> From<&PinnedSlice<'a, T>> for PinnedSlice<'a, T> {
    fn from(slice: &PinnedSlice<'a, T>) -> Self {
        *slice
    }
}

impl<T: Element> fmt::Debug for PinnedSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedSlice<{}>({} elements)", element::name::<T>(), self.len)
    }
}

//! Views of pinned memory, to read.

use std::fmt;
use std::marker::PhantomData;

use super::memory::{Copies, PinnedMemory};
use crate::cuda::memory::basics::address::Address;
use crate::cuda::memory::basics::values;
use crate::cuda::memory::methods::parts::part_methods;
use crate::cuda::memory::methods::pinned::pinned_methods;
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

part_methods! { view PinnedSlice over memory: PinnedMemory, AsPinned }

pinned_methods! {
    read ['a, T: Element] PinnedSlice<'a, T>, "PinnedSlice", 'a, *const, (
        "# use gpucomm::PinnedBuffer;
# fn main() -> gpucomm::Result<()> {
let buffer = PinnedBuffer::from_slice(&[1, 2, 3, 4])?;
let x = buffer.slice(..);",
        "# Ok(())
# }"
    )
}

impl<'a, T: Element> PinnedSlice<'a, T> {
    pub(crate) fn memory(&self) -> &'a PinnedMemory {
        self.memory
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    fn view(&self) -> Self {
        *self
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
        values::check::<T>(operation, unsafe { bytes_at(self.address, self.len * size_of::<T>()) })?;
        // SAFETY: the same bytes as elements: any bit pattern is one, or was looked at. CUDA's memory begins at a multiple of 256, above
        // which no element is aligned, and views lie whole elements behind that, or were checked.
        Ok(unsafe { std::slice::from_raw_parts(self.address.ptr().cast(), self.len) })
    }
}

/// # Safety
/// So many initialised bytes lie at the address, which nobody writes to while they are borrowed.
pub(super) unsafe fn bytes_at<'a>(address: Address, bytes: usize) -> &'a [u8] {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(address.ptr().cast(), bytes) }
}

impl<T: Element> fmt::Debug for PinnedSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedSlice<{}>({} elements)", element::name::<T>(), self.len)
    }
}

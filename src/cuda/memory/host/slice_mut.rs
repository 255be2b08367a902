//! Views of pinned memory, to write.

use std::fmt;
use std::marker::PhantomData;

use super::memory::{Copies, PinnedMemory};
use super::slice::{AsPinned, PinnedSlice, bytes_at};
use crate::cuda::memory::basics::address::Address;
use crate::cuda::memory::basics::values;
use crate::cuda::memory::methods::parts::part_methods;
use crate::cuda::memory::methods::pinned::pinned_methods;
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
/// let mut pinned = PinnedBuffer::<u16>::zeroed(4)?;
/// let mut part = pinned.slice_mut(1..3);
/// assert_eq!((part.len(), part.is_empty()), (2, false));
/// part.as_slice_mut()?.copy_from_slice(&[5, 6]);
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

/// What examples begin and end with.
macro_rules! begin {
    () => {
        "# use gpucomm::PinnedBuffer;
# fn main() -> gpucomm::Result<()> {
let mut buffer = PinnedBuffer::from_slice(&[1, 2, 3, 4])?;
let mut x = buffer.slice_mut(..);"
    };
}
macro_rules! end {
    () => {
        "# Ok(())
# }"
    };
}

part_methods! {
    view_mut PinnedSliceMut over memory: PinnedMemory, AsPinnedMut, PinnedSlice, AsPinned,
    (begin!(), end!(), ".to_vec()?", ".as_slice_mut()?.fill(7)")
}
pinned_methods! { read ['a, T: Element] PinnedSliceMut<'a, T>, "PinnedSliceMut", '_, *mut, (begin!(), end!()) }
pinned_methods! { write ['a, T: Element] PinnedSliceMut<'a, T>, "PinnedSliceMut", (begin!(), end!()) }

impl<'a, T: Element> PinnedSliceMut<'a, T> {
    pub(crate) fn memory(&self) -> &'a PinnedMemory {
        self.memory
    }

    /// Whether these are all bytes of the buffer.
    pub(crate) fn is_whole(&self) -> bool {
        self.len * size_of::<T>() == self.memory.bytes()
    }

    fn view(&self) -> PinnedSlice<'_, T> {
        PinnedSlice::of(self.memory, self.address, self.len)
    }

    fn view_mut(&mut self) -> PinnedSliceMut<'_, T> {
        self.reborrow()
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
        values::check::<T>(operation, unsafe { bytes_at(self.address, self.len * size_of::<T>()) })?;
        // SAFETY: as above.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.address.ptr().cast(), self.len) })
    }
}

impl<T: Element> fmt::Debug for PinnedSliceMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedSliceMut<{}>({} elements)", element::name::<T>(), self.len)
    }
}

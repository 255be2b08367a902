//! Views of symmetric memory, to write here: what a collective leaves its result in.

use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use super::block::Block;
use super::slice::{AsSymmetric, SymmetricSlice};
use crate::cuda::{Address, AsSliceMut, SliceMut, or_panic, resolve};
use crate::element::{self, Element};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

/// Elements of symmetric memory whose part on this PE nobody else uses from here: what a collective writes.
///
/// Other PEs can put to it all the same; the elements are what the last of all writes left there.
///
/// ```
/// # use gpucomm::nvshmem::SymmetricSliceMut;
/// fn rest<'a>(buffer: &'a mut SymmetricSliceMut<'_, f32>) -> SymmetricSliceMut<'a, f32> {
///     buffer.slice_mut(1..)
/// }
/// ```
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SignalOp, ContextUniqueId};
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
/// # let stream = Stream::new(device)?;
/// # // SAFETY: the only PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// let mut buffer = ctx.alloc::<u8>(10)?;
/// let mut all = buffer.as_symmetric_mut();
/// all.local().fill(&stream, 1)?;
/// let (mut front, back) = all.split_at_mut(4);
/// assert_eq!((front.len(), back.len(), back.is_empty()), (4, 6, false));
/// front.reborrow().into_local().fill(&stream, 2)?;
/// front.try_slice_mut(3..)?.local().fill(&stream, 3)?;
/// assert_eq!(all.as_symmetric().local().to_vec(&stream)?, [2, 2, 2, 3, 1, 1, 1, 1, 1, 1]);
/// # drop(buffer);
/// # ctx.close()?;
/// # Ok(())
/// # }
/// ```
pub struct SymmetricSliceMut<'a, T: Element> {
    block: &'a Arc<Block>,
    address: Address,
    len: usize,
    _elements: PhantomData<&'a mut [T]>,
}

/// What can be given as a [`SymmetricSliceMut`]: symmetric memory to write to, whole or in part.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no symmetric memory, with elements of type `{T}`, to write to",
    label = "expected `&mut buffer` of a `SymmetricBuffer`, or a part such as `buffer.symmetric_mut(..8)`",
    note = "collectives of NVSHMEM write to memory that all PEs have allocated together, by `Context::alloc`"
)]
pub trait AsSymmetricMut<'a, T: Element>: Into<SymmetricSliceMut<'a, T>> {}

impl<'a, T: Element> SymmetricSliceMut<'a, T> {
    pub(crate) fn of(block: &'a Arc<Block>, address: Address, len: usize) -> Self {
        Self { block, address, len, _elements: PhantomData }
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements of this PE, to be written.
    pub fn local(&mut self) -> SliceMut<'_, T> {
        SliceMut::of(&self.block.alloc, self.address, self.len)
    }

    /// The same, for as long as the memory is borrowed.
    pub fn into_local(self) -> SliceMut<'a, T> {
        SliceMut::of(&self.block.alloc, self.address, self.len)
    }

    /// The same place, to read here, and for any use on other PEs.
    pub fn as_symmetric(&self) -> SymmetricSlice<'_, T> {
        SymmetricSlice::of(self.block, self.address, self.len)
    }

    /// The same view for a shorter time, so that this one is still there afterwards.
    pub fn reborrow(&mut self) -> SymmetricSliceMut<'_, T> {
        SymmetricSliceMut::of(self.block, self.address, self.len)
    }

    /// The elements of `range`.
    ///
    /// # Panics
    /// Where the range does not lie within this view.
    #[track_caller]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SymmetricSliceMut<'_, T> {
        or_panic(self.slice_for("SymmetricSliceMut::slice_mut", &range))
    }

    /// The elements of `range`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the range does not lie within this view.
    pub fn try_slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SymmetricSliceMut<'_, T>> {
        self.slice_for("SymmetricSliceMut::try_slice_mut", &range)
    }

    fn slice_for(
        &mut self,
        operation: &'static str,
        range: &impl RangeBounds<usize>,
    ) -> Result<SymmetricSliceMut<'_, T>> {
        let range = resolve(operation, range, self.len)?;
        let address = self.address.add(range.start * size_of::<T>());
        Ok(SymmetricSliceMut::of(self.block, address, range.len()))
    }

    /// The elements before `mid` and those from it on.
    ///
    /// # Panics
    /// Where `mid` is greater than the length.
    #[track_caller]
    pub fn split_at_mut(&mut self, mid: usize) -> (SymmetricSliceMut<'_, T>, SymmetricSliceMut<'_, T>) {
        let range = or_panic(resolve("SymmetricSliceMut::split_at_mut", &(mid..), self.len));
        let next = self.address.add(range.start * size_of::<T>());
        (SymmetricSliceMut::of(self.block, self.address, mid), SymmetricSliceMut::of(self.block, next, range.len()))
    }
}

impl<'a, T: Element> AsSymmetricMut<'a, T> for SymmetricSliceMut<'a, T> {}
impl<'a, T: Element> AsSymmetric<'a, T> for &'a SymmetricSliceMut<'_, T> {}
impl<'a, T: Element> AsSliceMut<'a, T> for SymmetricSliceMut<'a, T> {}

impl<'a, T: Element> From<&'a SymmetricSliceMut<'_, T>> for SymmetricSlice<'a, T> {
    fn from(slice: &'a SymmetricSliceMut<'_, T>) -> Self {
        slice.as_symmetric()
    }
}

impl<'a, T: Element> From<SymmetricSliceMut<'a, T>> for SliceMut<'a, T> {
    fn from(slice: SymmetricSliceMut<'a, T>) -> Self {
        slice.into_local()
    }
}

impl<T: Element> std::fmt::Debug for SymmetricSliceMut<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SymmetricSliceMut<{}>({} elements)", element::name::<T>(), self.len)
    }
}

//! Views of symmetric memory, to read here and for any use on other PEs.

use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use super::block::Block;
use crate::cuda::{Address, AsSlice, Slice, or_panic, resolve};
use crate::element::{self, Element};
use crate::error::{Error, Result};
use crate::nvshmem::state::inner::Inner;

/// Elements of symmetric memory: the same place on every PE. The remote operand of a put or a get, and what a collective reads.
///
/// It borrows its buffer as `&`: what other PEs have there is nobody's alone. To read this PE's own elements, it is a
/// [`Slice`] as well ([`local`](Self::local)).
///
/// ```
/// # use gpucomm::nvshmem::{Context, SymmetricSlice};
/// # use gpucomm::Result;
/// fn halves<'a>(buffer: SymmetricSlice<'a, f32>) -> (SymmetricSlice<'a, f32>, SymmetricSlice<'a, f32>) {
///     let half = buffer.len() / 2;
///     (buffer.slice(..half), buffer.slice(half..))
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
/// let buffer = ctx.alloc::<u8>(10)?;
/// let part = buffer.as_symmetric().try_slice(8..)?;
/// assert_eq!((part.len(), part.is_empty(), part.local().to_vec(&stream)?), (2, false, vec![0, 0]));
/// // On another PE, by NVLink or PCIe; and by switches, where there are some.
/// let there = part.peer(Pe(0))?.map(|view| view.len());
/// assert_eq!(there, Some(2));
/// println!("{}", part.multicast(&ctx.world()?)?.is_some());
/// # drop(buffer);
/// # ctx.close()?;
/// # Ok(())
/// # }
/// ```
pub struct SymmetricSlice<'a, T: Element> {
    block: &'a Arc<Block>,
    address: Address,
    len: usize,
    _elements: PhantomData<&'a [T]>,
}

/// What can be given as a [`SymmetricSlice`]: symmetric memory, whole or in part.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no symmetric memory, with elements of type `{T}`",
    label = "expected `&buffer` of a `SymmetricBuffer`, or a part such as `buffer.symmetric(..8)`",
    note = "only memory that all PEs have allocated together, by `Context::alloc`, has a place on other PEs"
)]
pub trait AsSymmetric<'a, T: Element>: Into<SymmetricSlice<'a, T>> {}

impl<'a, T: Element> SymmetricSlice<'a, T> {
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

    /// The elements of this PE, to be read.
    pub fn local(&self) -> Slice<'a, T> {
        Slice::of(&self.block.alloc, self.address, self.len)
    }

    /// The elements of `range`.
    ///
    /// # Panics
    /// Where the range does not lie within this view.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        or_panic(self.slice_for("SymmetricSlice::slice", &range))
    }

    /// The elements of `range`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the range does not lie within this view.
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        self.slice_for("SymmetricSlice::try_slice", &range)
    }

    pub(crate) fn slice_for(&self, operation: &'static str, range: &impl RangeBounds<usize>) -> Result<Self> {
        let range = resolve(operation, range, self.len)?;
        Ok(Self { address: self.address.add(range.start * size_of::<T>()), len: range.len(), ..*self })
    }

    /// The address in this PE's part, which means the same place on any other.
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    pub(crate) fn block(&self) -> &'a Arc<Block> {
        self.block
    }

    /// Fails where it is not memory of this context.
    pub(crate) fn check(&self, operation: &'static str, what: &'static str, inner: &Inner) -> Result<()> {
        if self.block.inner.id == inner.id {
            return Ok(());
        }
        Err(Error::argument(operation, what, "symmetric memory of this context", "that of another one"))
    }
}

impl<T: Element> Clone for SymmetricSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element> Copy for SymmetricSlice<'_, T> {}

impl<'a, T: Element> AsSymmetric<'a, T> for SymmetricSlice<'a, T> {}
impl<'a, T: Element> AsSymmetric<'a, T> for &SymmetricSlice<'a, T> {}
impl<'a, T: Element> AsSlice<'a, T> for SymmetricSlice<'a, T> {}

impl<'a, T: Element> From<&SymmetricSlice<'a, T>> for SymmetricSlice<'a, T> {
    fn from(slice: &SymmetricSlice<'a, T>) -> Self {
        *slice
    }
}

impl<'a, T: Element> From<SymmetricSlice<'a, T>> for Slice<'a, T> {
    fn from(slice: SymmetricSlice<'a, T>) -> Self {
        slice.local()
    }
}

impl<T: Element> std::fmt::Debug for SymmetricSlice<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SymmetricSlice<{}>({} elements)", element::name::<T>(), self.len)
    }
}

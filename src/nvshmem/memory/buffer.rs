//! Buffers of symmetric memory.

use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use super::block::Block;
use super::handle::Handle;
use super::slice::{AsSymmetric, SymmetricSlice};
use super::slice_mut::{AsSymmetricMut, SymmetricSliceMut};
use crate::cuda::{Address, Allocation, Slice, SliceMut, device_methods, or_panic};
use crate::element::{self, Element};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nvshmem::life::context::Context;
use crate::nvshmem::state::meeting::{Kind, Plan};
use crate::nvshmem::state::wait_state::Awaited;

/// Memory that all PEs have allocated together: so many elements on each. Any PE puts to and gets from it on any other.
///
/// On its own PE it is device memory like any other: copies, slices and operations of NCCL take it like a
/// [`DeviceBuffer`](crate::DeviceBuffer). It borrows the context, which therefore cannot be closed before.
///
/// [`slice`](Self::slice) lends elements of this PE, [`symmetric`](Self::symmetric) the same place on any PE.
/// Each PE may split its buffer as it likes ([`into_split`](Self::into_split)): the memory counts as dropped
/// when all parts are. The library knows the parts of other PEs by the address of this PE's part
/// ([`as_raw`](Self::as_raw)). There is no way back from an address to a buffer: pass memory that other code
/// has allocated to the functions of [`gpucomm::sys`](crate::sys).
///
/// Dropping it waits for nothing and calls nothing that is collective: it is put down, and freed where all PEs come together
/// next and all of them have dropped it. See [`Context::reclaim`].
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SymmetricBuffer, ContextUniqueId};
/// # use gpucomm::{Device, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
/// # // SAFETY: there is no other PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// let stream = Stream::new(ctx.device())?;
/// let mut x = ctx.alloc::<f32>(4)?;
/// x.copy_from_slice(&stream, &[1.0, 2.0, 3.0, 4.0])?;
/// x.slice_mut(3..).fill(&stream, 0.0)?;
/// assert_eq!((x.len(), x.is_empty(), x.device()), (4, false, device));
/// assert_eq!(x.slice(2..).to_vec(&stream)?, [3.0, 0.0]);
/// // The same place, on every PE, and as what a collective writes.
/// assert_eq!((x.as_symmetric().len(), x.symmetric(1..).len()), (4, 3));
/// assert_eq!((x.as_symmetric_mut().len(), x.symmetric_mut(..2).len()), (4, 2));
/// println!("{:?} here; by switches: {}", x.as_raw(), x.multicast(&ctx.world()?)?.is_some());
/// assert_eq!(x.peer(Pe(0))?.map(|view| view.len()), Some(4));
/// let mut first = [0.0];
/// x.fill(&stream, 5.0)?;
/// let y = ctx.alloc::<f32>(4)?;
/// x.copy_from(&stream, &y)?;
/// x.slice(..1).copy_to_slice(&stream, &mut first)?;
/// assert_eq!(first, [0.0]);
/// # drop((x, y));
/// # ctx.close()?;
/// # Ok(())
/// # }
/// ```
pub struct SymmetricBuffer<'ctx, T: Element> {
    block: Handle,
    address: Address,
    len: usize,
    _context: PhantomData<(&'ctx (), T)>,
}

impl<'ctx, T: Element> SymmetricBuffer<'ctx, T> {
    pub(crate) fn new(block: Arc<Block>, address: Address, len: usize) -> Self {
        Self { block: Handle::new(block), address, len, _context: PhantomData }
    }

    fn allocation(&self) -> &Allocation {
        &self.block.alloc
    }

    /// Another buffer over the same memory. The caller has checked that `len` elements lie at `address`,
    /// and no other buffer shows any of them.
    fn showing<U: Element>(&self, address: Address, len: usize) -> SymmetricBuffer<'ctx, U> {
        SymmetricBuffer { block: self.block.clone(), address, len, _context: PhantomData }
    }

    /// The same buffer, which does not borrow the context: for who puts both into one struct. [`Context::close`] fails while it is there.
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SymmetricBuffer, ContextUniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: there is no other PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// struct Model {
    ///     weights: SymmetricBuffer<'static, f32>,
    ///     ctx: Context,
    /// }
    /// let weights = ctx.alloc(1000)?.into_shared();
    /// let model = Model { weights, ctx };
    /// let Model { weights, ctx } = model;
    /// drop(weights);
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_shared(self) -> SymmetricBuffer<'static, T> {
        let Self { block, address, len, .. } = self;
        SymmetricBuffer { block: block.into_shared(), address, len, _context: PhantomData }
    }

    /// Wraps `nvshmem_free`: frees the memory on all PEs, at once, unless a part of a buffer that was split is still there. Collective: all PEs do so with the same buffer, and what all of them have dropped before goes
    /// too. A buffer that is dropped is freed later, where all PEs come together for something else.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// ctx.alloc::<f32>(1000)?.free(&ctx)?;
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another context; [`Error::Timeout`] where work that uses it is not done in time, or not all PEs come, after which the context is
    /// lost. It is put down then, as if it had been dropped.
    #[doc(alias = "nvshmem_free")]
    pub fn free(self, ctx: &Context) -> Result<()> {
        const OPERATION: &str = "SymmetricBuffer::free";
        let inner = ctx.inner();
        self.as_symmetric().check(OPERATION, "ctx", inner)?;
        drop(self);
        inner.ready(OPERATION)?;
        let what = "work that uses symmetric memory";
        inner.poll(OPERATION, &inner.deadline(), &Awaited::All, what, || inner.dropped.is_done())?;
        inner.meet(&Plan::new(OPERATION, Kind::Reclaim)).map(drop)
    }

    /// All elements, on any PE.
    pub fn as_symmetric(&self) -> SymmetricSlice<'_, T> {
        SymmetricSlice::of(&self.block, self.address, self.len)
    }

    /// All elements, as what a collective writes.
    pub fn as_symmetric_mut(&mut self) -> SymmetricSliceMut<'_, T> {
        SymmetricSliceMut::of(&self.block, self.address, self.len)
    }

    /// The elements of `range`, on any PE.
    ///
    /// # Panics
    /// Where the range does not lie within the buffer.
    #[track_caller]
    pub fn symmetric(&self, range: impl RangeBounds<usize>) -> SymmetricSlice<'_, T> {
        or_panic(self.as_symmetric().slice_for("SymmetricBuffer::symmetric", &range))
    }

    /// The elements of `range`, as what a collective writes.
    ///
    /// # Panics
    /// Where the range does not lie within the buffer.
    #[track_caller]
    pub fn symmetric_mut(&mut self, range: impl RangeBounds<usize>) -> SymmetricSliceMut<'_, T> {
        let part = or_panic(self.as_symmetric().slice_for("SymmetricBuffer::symmetric_mut", &range));
        let (address, len) = (part.address(), part.len());
        SymmetricSliceMut::of(&self.block, address, len)
    }
}

device_methods! {
    own ['ctx, T: Element] SymmetricBuffer<'ctx, T>, "SymmetricBuffer", cast SymmetricBuffer<'ctx, U>, (
        "# use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
# use gpucomm::{Device, DeviceBuffer, Error, PinnedBuffer, Stream};
# use std::time::Duration;
# fn main() -> gpucomm::Result<()> {
# let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
# // SAFETY: there is no other PE.
# let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
# {
# let stream = Stream::new(ctx.device())?;
let mut x = ctx.alloc(4)?;
x.copy_from_slice(&stream, &[1, 2, 3, 4])?;",
        "# }
# ctx.close()?;
# Ok(())
# }"
    )
}

impl<'a, T: Element> AsSymmetric<'a, T> for &'a SymmetricBuffer<'_, T> {}
impl<'a, T: Element> AsSymmetricMut<'a, T> for &'a mut SymmetricBuffer<'_, T> {}

impl<'a, T: Element> From<&'a SymmetricBuffer<'_, T>> for SymmetricSlice<'a, T> {
    fn from(buffer: &'a SymmetricBuffer<'_, T>) -> Self {
        buffer.as_symmetric()
    }
}

impl<'a, T: Element> From<&'a mut SymmetricBuffer<'_, T>> for SymmetricSliceMut<'a, T> {
    fn from(buffer: &'a mut SymmetricBuffer<'_, T>) -> Self {
        buffer.as_symmetric_mut()
    }
}

impl<T: Element> std::fmt::Debug for SymmetricBuffer<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SymmetricBuffer")
            .field("element", &format_args!("{}", element::name::<T>()))
            .field("len", &self.len)
            .field("device", &self.device())
            .finish()
    }
}

//! Registered memory of the host.

use std::ops::RangeBounds;

use super::registered::Registered;
use crate::cuda::{AsPinned, AsPinnedMut, PinnedBuffer, PinnedSlice, PinnedSliceMut};
use crate::element::Element;
use crate::error::Result;
use crate::nvshmem::memory::local::{AsLocal, AsLocalMut, Local};

/// To be read, it is the [`PinnedBuffer`] that it derefs to.
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, ContextUniqueId};
/// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
/// # // SAFETY: the only PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// # let stream = Stream::new(device)?;
/// let there = ctx.alloc::<f32>(4)?;
/// let mut batch = ctx.register(PinnedBuffer::<f32>::zeroed(4)?)?;
/// batch.as_slice_mut()?.copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
/// ctx.on(&stream).put(&there, &batch, Pe(0))?;
/// ctx.on(&stream).get(batch.slice_mut(..2), there.symmetric(2..), Pe(0))?;
/// // Waits for both.
/// assert_eq!(batch.as_slice()?, [3.0, 4.0, 3.0, 4.0]);
/// let pinned = batch.unregister()?;
/// assert_eq!(pinned.len(), 4);
/// # drop(there);
/// # ctx.close()?;
/// # Ok(())
/// # }
/// ```
impl<T: Element> Registered<'_, PinnedBuffer<T>> {
    /// The elements, after what uses them is done; see [`PinnedBuffer::as_slice_mut`].
    ///
    /// # Errors
    /// As there.
    pub fn as_slice_mut(&mut self) -> Result<&mut [T]> {
        self.buffer_mut().as_slice_mut()
    }

    /// The elements of `range`, to be written by devices; see [`PinnedBuffer::slice_mut`].
    ///
    /// # Panics
    /// Where the range does not lie within the buffer.
    #[track_caller]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> PinnedSliceMut<'_, T> {
        self.buffer_mut().slice_mut(range)
    }
}

impl<'a, T: Element> AsPinned<'a, T> for &'a Registered<'_, PinnedBuffer<T>> {}
impl<'a, T: Element> AsPinnedMut<'a, T> for &'a mut Registered<'_, PinnedBuffer<T>> {}

impl<'a, T: Element> From<&'a Registered<'_, PinnedBuffer<T>>> for PinnedSlice<'a, T> {
    fn from(registered: &'a Registered<'_, PinnedBuffer<T>>) -> Self {
        registered.slice(..)
    }
}

impl<'a, T: Element> From<&'a mut Registered<'_, PinnedBuffer<T>>> for PinnedSliceMut<'a, T> {
    fn from(registered: &'a mut Registered<'_, PinnedBuffer<T>>) -> Self {
        registered.slice_mut(..)
    }
}

impl<'a, T: Element> AsLocal<'a, T> for &'a Registered<'_, PinnedBuffer<T>> {
    fn local_operand(self) -> Local<'a> {
        self.slice(..).local_operand()
    }
}

impl<'a, T: Element> AsLocalMut<'a, T> for &'a mut Registered<'_, PinnedBuffer<T>> {
    fn local_operand(self) -> Local<'a> {
        self.slice_mut(..).local_operand()
    }
}

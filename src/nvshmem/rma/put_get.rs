//! Puts and gets that block.

use super::transfer::Transfer;
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nvshmem::life::context::Context;
use crate::nvshmem::life::on_stream::OnStream;
use crate::nvshmem::memory::local::{AsLocal, AsLocalMut};
use crate::nvshmem::memory::slice::AsSymmetric;
use crate::nvshmem::pe::Pe;

/// # Putting and getting
///
/// `dest` of a put and `source` of a get is symmetric memory, at the other PE; the other operand is memory of this PE, of its device or pinned on its host:
/// symmetric, [registered](Self::register), or, where the PE [is near](Self::is_near), any. Within a graph pinned
/// memory is what has [moved into it](crate::Stream::move_in). Lengths are in elements, and equal; none is nothing to do. From a PE to itself, the two do not overlap.
///
/// What this PE's streams do with the operands is ordered, or waited for, as everywhere in this crate. What other PEs do with the memory at the other end
/// is not known here: barriers, [signals](crate::nvshmem::Signal) and waits order that.
impl Context {
    /// Wraps `nvshmem_putmem`: copies `source` to `dest` on `pe`. Waits until `source` may be used again: first for what streams do with it, then for the copy.
    ///
    /// On `pe` the elements are there after a [`quiet`](Self::quiet) or a [barrier](Self::barrier_all) of this PE; after a
    /// [`fence`](Self::fence) they come before what is put there later. At a PE that is near, they are there when this returns.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let next = Pe((ctx.pe().0 + 1) % ctx.n_pes());
    /// let target = ctx.alloc::<f32>(8)?;
    /// let source = DeviceBuffer::from_slice(&stream, &[1.5f32; 3])?;
    /// ctx.put(target.symmetric(2..5), &source, next)?;
    /// ctx.barrier_all()?;
    /// assert_eq!(target.to_vec(&stream)?, [0.0, 0.0, 1.5, 1.5, 1.5, 0.0, 0.0, 0.0]);
    /// # drop(target); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a PE that there is none, for lengths that differ, memory of another context or device, memory that `pe` cannot be
    /// reached with, and operands that overlap; [`Error::Timeout`] where streams use the memory for longer than the timeout.
    #[doc(alias = "nvshmem_putmem")]
    pub fn put<'a, T: Element>(
        &self,
        dest: impl AsSymmetric<'a, T>,
        source: impl AsLocal<'a, T>,
        pe: Pe,
    ) -> Result<()> {
        self.on_host().put(dest, source, pe)
    }

    /// Wraps `nvshmem_getmem`: copies `source` on `pe` to `dest`. The elements are there when it returns; first it waits for what streams do with `dest`.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let mut symmetric = ctx.alloc::<u8>(4)?;
    /// symmetric.copy_from_slice(&stream, &[1, 2, 3, 4])?;
    /// stream.synchronize()?;
    /// ctx.barrier_all()?;
    /// let mut copy = DeviceBuffer::<u8>::zeroed(&stream, 3)?;
    /// ctx.get(&mut copy, symmetric.symmetric(1..), Pe(0))?;
    /// assert_eq!(copy.to_vec(&stream)?, [2, 3, 4]);
    /// # drop(symmetric); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[doc(alias = "nvshmem_getmem")]
    pub fn get<'a, T: Element>(
        &self,
        dest: impl AsLocalMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        pe: Pe,
    ) -> Result<()> {
        self.on_host().get(dest, source, pe)
    }
}

impl OnStream<'_> {
    /// Enqueues [`Context::put`]. On `pe` the elements are there after a [`quiet`](Self::quiet) or a barrier on the same stream: a
    /// [`quiet`](Context::quiet) on the host does not wait for the stream. Wraps `nvshmemx_putmem_on_stream`.
    #[doc(alias = "nvshmemx_putmem_on_stream")]
    pub fn put<'a, T: Element>(
        &self,
        dest: impl AsSymmetric<'a, T>,
        source: impl AsLocal<'a, T>,
        pe: Pe,
    ) -> Result<()> {
        let (inner, place) = self.at("Context::put", "OnStream::put");
        Transfer::put(inner, place.operation, dest.into(), source.local_operand(), pe)?.run(inner, place)
    }

    /// Enqueues [`Context::get`]. Later work of the stream finds the elements in `dest`. Wraps `nvshmemx_getmem_on_stream`.
    #[doc(alias = "nvshmemx_getmem_on_stream")]
    pub fn get<'a, T: Element>(
        &self,
        dest: impl AsLocalMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        pe: Pe,
    ) -> Result<()> {
        let (inner, place) = self.at("Context::get", "OnStream::get");
        Transfer::get(inner, place.operation, dest.local_operand(), source.into(), pe)?.run(inner, place)
    }
}

//! Puts and gets that are done when they return, and those on streams.

use super::transfer::{Ends, Transfer};
use crate::cuda::Stream;
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nvshmem::life::context::Context;
use crate::nvshmem::memory::local::{AsLocal, AsLocalMut};
use crate::nvshmem::memory::slice::AsSymmetric;
use crate::nvshmem::pe::Pe;
use crate::sys;

/// # Putting and getting
///
/// `dest` of a put and `source` of a get is symmetric memory, at the other PE; the other operand is memory of this PE, of its device or pinned on its host:
/// symmetric, [registered](Self::register), or, where the PE [is near](Self::is_near), any. Within a graph pinned
/// memory is what has [moved into it](Stream::move_in). Lengths are in elements, and equal; none is nothing to do. From a PE to itself, the two do not overlap.
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
    /// # use gpucomm::nvshmem::{Context, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let next = Pe((ctx.pe().0 + 1) % ctx.n_pes());
    /// let target = ctx.alloc::<f32>(8)?;
    /// let source = DeviceBuffer::from_slice(&stream, &[1.5f32; 3])?;
    /// ctx.put(target.symmetric(2..5), &source, next)?;
    /// ctx.barrier_all()?;
    /// assert_eq!(target.to_vec(&stream)?, [0.0, 0.0, 1.5, 1.5, 1.5, 0.0, 0.0, 0.0]);
    /// # drop(target); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a PE that there is none, for lengths that differ, memory of another context or device, memory that `pe` cannot be
    /// reached with, and operands that overlap; [`Error::Timeout`] where streams use the memory for longer than the timeout.
    pub fn put<'a, T: Element>(
        &self,
        dest: impl AsSymmetric<'a, T>,
        source: impl AsLocal<'a, T>,
        pe: Pe,
    ) -> Result<()> {
        const OPERATION: &str = "Context::put";
        let transfer = Transfer::put(self.inner(), OPERATION, dest.into(), source.local_operand(), pe)?;
        let near = |ends: Ends| {
            // SAFETY: symmetric memory of so many bytes, local memory of as many that nobody uses, and a PE.
            unsafe { sys::nvshmem_putmem(ends.remote, ends.local, ends.bytes, ends.pe) };
        };
        transfer.now(self.inner(), OPERATION, near, |ends, stream| {
            // SAFETY: the same, with local memory that is ordered, and a stream of the PE's device.
            unsafe { sys::nvshmemx_putmem_on_stream(ends.remote, ends.local, ends.bytes, ends.pe, stream) };
        })
    }

    /// Wraps `nvshmem_getmem`: copies `source` on `pe` to `dest`. The elements are there when it returns; first it waits for what streams do with `dest`.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let mut symmetric = ctx.alloc::<u8>(4)?;
    /// symmetric.copy_from_slice(&stream, &[1, 2, 3, 4])?;
    /// stream.synchronize()?;
    /// ctx.barrier_all()?;
    /// let mut copy = DeviceBuffer::<u8>::zeroed(&stream, 3)?;
    /// ctx.get(&mut copy, symmetric.symmetric(1..), Pe(0))?;
    /// assert_eq!(copy.to_vec(&stream)?, [2, 3, 4]);
    /// # drop(symmetric); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get<'a, T: Element>(
        &self,
        dest: impl AsLocalMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        pe: Pe,
    ) -> Result<()> {
        const OPERATION: &str = "Context::get";
        let transfer = Transfer::get(self.inner(), OPERATION, dest.local_operand(), source.into(), pe)?;
        let near = |ends: Ends| {
            // SAFETY: as in `put`; the local memory is borrowed to be written.
            unsafe { sys::nvshmem_getmem(ends.local, ends.remote, ends.bytes, ends.pe) };
        };
        transfer.now(self.inner(), OPERATION, near, |ends, stream| {
            // SAFETY: as in `put`; the local memory is borrowed to be written.
            unsafe { sys::nvshmemx_getmem_on_stream(ends.local, ends.remote, ends.bytes, ends.pe, stream) };
        })
    }

    /// Wraps `nvshmemx_putmem_on_stream`: enqueues a copy of `source` to `dest` on `pe`. It can be part of a graph.
    ///
    /// Later work of `stream` may use `source`. On `pe` the elements are there after a [`quiet_on_stream`](Self::quiet_on_stream) or a barrier on the same stream.
    /// A [`quiet`](Self::quiet) on the host does not wait for the stream.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let target = ctx.alloc::<i64>(2)?;
    /// let source = DeviceBuffer::from_slice(&stream, &[7i64, 8])?;
    /// ctx.put_on_stream(&target, &source, Pe(0), &stream)?;
    /// ctx.barrier_all_on_stream(&stream)?;
    /// assert_eq!(target.to_vec(&stream)?, [7, 8]);
    /// # drop(target); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put), at once; [`Error::InvalidArgument`] for a stream of another device; as [`Stream::launch`].
    pub fn put_on_stream<'a, T: Element>(
        &self,
        dest: impl AsSymmetric<'a, T>,
        source: impl AsLocal<'a, T>,
        pe: Pe,
        stream: &Stream,
    ) -> Result<()> {
        const OPERATION: &str = "Context::put_on_stream";
        let transfer = Transfer::put(self.inner(), OPERATION, dest.into(), source.local_operand(), pe)?;
        transfer.on_stream(self.inner(), OPERATION, stream, |ends, stream| {
            // SAFETY: symmetric memory of so many bytes, local memory of as many that is ordered, a PE, and a stream of its device.
            unsafe { sys::nvshmemx_putmem_on_stream(ends.remote, ends.local, ends.bytes, ends.pe, stream) };
        })
    }

    /// Wraps `nvshmemx_getmem_on_stream`: enqueues a copy of `source` on `pe` to `dest`, whose elements later work of `stream` finds. It can be part
    /// of a graph.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let source = ctx.alloc::<u16>(3)?;
    /// let mut copy = DeviceBuffer::from_slice(&stream, &[9u16; 3])?;
    /// ctx.get_on_stream(&mut copy, &source, Pe(0), &stream)?;
    /// assert_eq!(copy.to_vec(&stream)?, [0; 3]);
    /// # drop(source); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`put_on_stream`](Self::put_on_stream).
    pub fn get_on_stream<'a, T: Element>(
        &self,
        dest: impl AsLocalMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        pe: Pe,
        stream: &Stream,
    ) -> Result<()> {
        const OPERATION: &str = "Context::get_on_stream";
        let transfer = Transfer::get(self.inner(), OPERATION, dest.local_operand(), source.into(), pe)?;
        transfer.on_stream(self.inner(), OPERATION, stream, |ends, stream| {
            // SAFETY: as in `put_on_stream`; the local memory is borrowed to be written.
            unsafe { sys::nvshmemx_getmem_on_stream(ends.local, ends.remote, ends.bytes, ends.pe, stream) };
        })
    }
}

//! Where all PEs wait for each other.

use crate::cuda::Stream;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nvshmem::life::context::Context;
use crate::nvshmem::state::order::OrderUse;
use crate::nvshmem::state::wait_state::Awaited;
use crate::sys;

/// # Barriers
///
/// All PEs make the same of these calls in the same order, whatever streams they use: what is enqueued on several streams of this PE is done in the order of
/// the calls.
///
/// A barrier completes what *its own caller* has put: on the host, what the host has put; on a stream, what that stream has. Neither waits for other
/// streams. So before the host comes to a barrier, a stream's puts are completed by waiting for the stream, and what a stream writes to this PE's own
/// memory, such as a copy from the host, is there when that has been waited for. A *sync* completes nothing: it says that all have come, no more.
impl Context {
    /// Wraps `nvshmem_barrier_all`: waits until all PEs have come, and what their hosts had put before is there.
    ///
    /// First it waits until what was enqueued on streams of this PE for all PEs together is done. Streams that do anything else it does not wait for.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let (from, to) = ((ctx.pe().0 + ctx.n_pes() - 1) % ctx.n_pes(), (ctx.pe().0 + 1) % ctx.n_pes());
    /// let slot = ctx.alloc::<u64>(1)?;
    /// ctx.put_value(&slot, ctx.pe().0 as u64, Pe(to))?;
    /// ctx.barrier_all()?;
    /// assert_eq!(slot.to_vec(&stream)?, [from as u64]);
    /// # drop(slot); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] where that is not done in time; [`Error::Departed`] where the exchange knows meanwhile that a PE has ended. A PE that does not
    /// come is the [watchdog](crate::nvshmem::ContextBuilder::watchdog)'s business.
    pub fn barrier_all(&self) -> Result<()> {
        self.together("Context::barrier_all", || {
            // SAFETY: the library runs, and all PEs call it as their next one.
            unsafe { sys::nvshmem_barrier_all() };
        })
    }

    /// Wraps `nvshmem_sync_all`: waits until all PEs have come. What they have put may still be under way.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// // Nobody begins before all are there.
    /// ctx.sync_all()?;
    /// # ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`barrier_all`](Self::barrier_all).
    pub fn sync_all(&self) -> Result<()> {
        self.together("Context::sync_all", || {
            // SAFETY: the library runs, and all PEs call it as their next one.
            unsafe { sys::nvshmem_sync_all() };
        })
    }

    /// Wraps `nvshmemx_barrier_all_on_stream`: later work of `stream` comes when all PEs' streams have come here, and what they had put before is there. It can be
    /// part of a graph, where each PE has a device of its own.
    ///
    /// Where several PEs share a device without MPS, the call itself waits until those have made it.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let (slot, mine) = (ctx.alloc::<u16>(2)?, DeviceBuffer::from_slice(&stream, &[3u16, 4])?);
    /// ctx.put_on_stream(&slot, &mine, Pe((ctx.pe().0 + 1) % ctx.n_pes()), &stream)?;
    /// ctx.barrier_all_on_stream(&stream)?;
    /// assert_eq!(slot.to_vec(&stream)?, [3, 4]);
    /// # drop(slot); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Stream::launch`]; [`Error::InvalidUsage`] in a capture where PEs share devices without MPS.
    pub fn barrier_all_on_stream(&self, stream: &Stream) -> Result<()> {
        let inner = self.inner();
        let world = OrderUse::exclusive(&*inner.world);
        inner.together_on_stream("Context::barrier_all_on_stream", stream, world, &Awaited::All, |stream| {
            // SAFETY: the library runs, the stream is one of its device, and all PEs call it as their next one.
            unsafe { sys::nvshmemx_barrier_all_on_stream(stream) };
        })
    }

    /// Wraps `nvshmemx_sync_all_on_stream`: later work of `stream` comes when all PEs' streams have come here. What they have put may still be under way.
    /// As [`barrier_all_on_stream`](Self::barrier_all_on_stream) otherwise.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// ctx.sync_all_on_stream(&stream)?;
    /// stream.synchronize()?;
    /// # ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`barrier_all_on_stream`](Self::barrier_all_on_stream).
    pub fn sync_all_on_stream(&self, stream: &Stream) -> Result<()> {
        let inner = self.inner();
        let world = OrderUse::exclusive(&*inner.world);
        inner.together_on_stream("Context::sync_all_on_stream", stream, world, &Awaited::All, |stream| {
            // SAFETY: the library runs, the stream is one of its device, and all PEs call it as their next one.
            unsafe { sys::nvshmemx_sync_all_on_stream(stream) };
        })
    }

    /// A call that all PEs make together, on the host: after what this one's streams do with all of them, which would meet it within the library.
    fn together(&self, operation: &'static str, f: impl FnOnce()) -> Result<()> {
        let inner = self.inner();
        inner.ready(operation)?;
        let _world = inner.wait_idle_world(operation)?;
        inner.on_host_with(operation, &Awaited::All, f)
    }
}

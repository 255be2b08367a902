//! Where all PEs wait for each other.

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nvshmem::life::context::Context;
use crate::nvshmem::life::on_stream::OnStream;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::order::OrderUse;
use crate::nvshmem::state::place::Place;
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
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let (from, to) = ((ctx.pe().0 + ctx.n_pes() - 1) % ctx.n_pes(), (ctx.pe().0 + 1) % ctx.n_pes());
    /// let slot = ctx.alloc::<u64>(1)?;
    /// ctx.put_value(&slot, ctx.pe().0 as u64, Pe(to))?;
    /// ctx.barrier_all()?;
    /// assert_eq!(slot.to_vec(&stream)?, [from as u64]);
    /// # drop(slot); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] where that is not done in time; [`Error::Departed`] where the exchange knows meanwhile that a PE has ended. A PE that does not
    /// come is the [watchdog](crate::nvshmem::ContextOptions::with_watchdog)'s business.
    #[doc(alias = "nvshmem_barrier_all")]
    pub fn barrier_all(&self) -> Result<()> {
        self.on_host().barrier_all()
    }

    /// Wraps `nvshmem_sync_all`: waits until all PEs have come. What they have put may still be under way.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// // Nobody begins before all are there.
    /// ctx.sync_all()?;
    /// # ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`barrier_all`](Self::barrier_all).
    #[doc(alias = "nvshmem_sync_all")]
    pub fn sync_all(&self) -> Result<()> {
        self.on_host().sync_all()
    }
}

impl OnStream<'_> {
    /// Enqueues [`Context::barrier_all`]. Later work of the stream runs when all PEs' streams have come here, and what they had put before is
    /// there. Wraps `nvshmemx_barrier_all_on_stream`.
    ///
    /// Where several PEs share a device without MPS, the call itself waits until those have made it, and no graph can have it.
    ///
    /// # Errors
    /// See [`OnStream`]; [`Error::InvalidUsage`] in a capture where PEs share devices without MPS.
    #[doc(alias = "nvshmemx_barrier_all_on_stream")]
    pub fn barrier_all(&self) -> Result<()> {
        let (inner, place) = self.at("Context::barrier_all", "OnStream::barrier_all");
        together(inner, place, sys::nvshmem_barrier_all, sys::nvshmemx_barrier_all_on_stream)
    }

    /// Enqueues [`Context::sync_all`]. Later work of the stream runs when all PEs' streams have come here. What they have put may still be under
    /// way. Wraps `nvshmemx_sync_all_on_stream`.
    ///
    /// # Errors
    /// As [`barrier_all`](Self::barrier_all).
    #[doc(alias = "nvshmemx_sync_all_on_stream")]
    pub fn sync_all(&self) -> Result<()> {
        let (inner, place) = self.at("Context::sync_all", "OnStream::sync_all");
        together(inner, place, sys::nvshmem_sync_all, sys::nvshmemx_sync_all_on_stream)
    }
}

/// Calls a function that all PEs call together. On the host it comes after what this one's streams do with all of them, which would meet it within the
/// library.
fn together(
    inner: &Inner,
    Place { operation, stream }: Place<'_>,
    host: unsafe extern "C" fn(),
    enqueue: unsafe extern "C" fn(sys::cudaStream_t),
) -> Result<()> {
    if let Some(stream) = stream {
        let world = OrderUse::exclusive(&*inner.world);
        // SAFETY: the library runs, the stream is one of its device, and all PEs call it as their next one.
        let enqueue = |stream| unsafe { enqueue(stream) };
        return inner.together_on_stream(operation, stream, world, &Awaited::All, enqueue);
    }
    inner.ready(operation)?;
    let _world = inner.wait_idle_world(operation)?;
    // SAFETY: the library runs, and all PEs call it as their next one.
    inner.on_host_with(operation, &Awaited::All, || unsafe { host() })
}

//! Where the members of a team wait for each other.

use super::team::Team;
use crate::cuda::Stream;
use crate::error::Result;
use crate::nvshmem::state::code::check;
use crate::shared_deadline::SharedDeadline;
use crate::sys;

impl Team<'_> {
    /// Wraps `nvshmem_barrier`: waits until all members have come, and what each has put by calls on the host has arrived before that. What streams
    /// still have to do is not waited for.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where several PEs share a device without MPS, for which
    /// [`Context::barrier_all`](crate::nvshmem::Context::barrier_all) is there. Where a member does not come, the
    /// [watchdog](crate::nvshmem::ContextBuilder::watchdog) ends the process; [`Error::Departed`](crate::Error::Departed) where one is known to have ended while
    /// streams still do something with the team.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, UniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, UniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let (mut team, stream) = (ctx.node()?, Stream::new(ctx.device())?);
    /// team.barrier()?;
    /// team.sync()?;
    /// // Behind what the stream has to do, and before what comes later on it.
    /// team.barrier_on_stream(&stream)?;
    /// team.sync_on_stream(&stream)?;
    /// stream.synchronize()?;
    /// # drop(team);
    /// # ctx.finalize()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn barrier(&mut self) -> Result<()> {
        // SAFETY: the team is there, and all members call it as their next one.
        self.on_host("Team::barrier", "nvshmem_barrier", |team| unsafe { sys::nvshmem_barrier(team) })
    }

    /// Wraps `nvshmem_team_sync`: waits until all members have come. What was put may not have arrived.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn sync(&mut self) -> Result<()> {
        // SAFETY: the team is there, and all members call it as their next one.
        self.on_host("Team::sync", "nvshmem_team_sync", |team| unsafe { sys::nvshmem_team_sync(team) })
    }

    /// Wraps `nvshmemx_barrier_on_stream`: the stream goes on when all members have come to it, and what each has put before, on that stream or by
    /// calls on the host, has arrived.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where several PEs share a device without MPS;
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a stream of another device.
    pub fn barrier_on_stream(&mut self, stream: &Stream) -> Result<()> {
        // SAFETY: the team is there, and all members enqueue it as their next one.
        self.together("Team::barrier_on_stream", "nvshmemx_barrier_on_stream", stream, (), |team, stream| unsafe {
            sys::nvshmemx_barrier_on_stream(team, stream)
        })
    }

    /// Wraps `nvshmemx_team_sync_on_stream`: the stream goes on when all members have come to it. What was put may not have arrived.
    ///
    /// # Errors
    /// As [`barrier_on_stream`](Self::barrier_on_stream).
    pub fn sync_on_stream(&mut self, stream: &Stream) -> Result<()> {
        // SAFETY: the team is there, and all members enqueue it as their next one.
        self.together("Team::sync_on_stream", "nvshmemx_team_sync_on_stream", stream, (), |team, stream| unsafe {
            sys::nvshmemx_team_sync_on_stream(team, stream)
        })
    }

    /// A call on the host, behind what streams do with the team.
    fn on_host(
        &mut self,
        operation: &'static str,
        c: &'static str,
        f: impl FnOnce(sys::nvshmem_team_t) -> i32,
    ) -> Result<()> {
        self.inner.ready(operation)?;
        self.inner.check_whole(operation)?;
        let (inner, awaited) = (&self.inner, self.state.awaited());
        let _waits = SharedDeadline::begin();
        let _team =
            inner.wait_idle_order(operation, &self.state.order, Some(&awaited), "what the team does on streams")?;
        let _world = if self.state.beside_world { Some(inner.wait_idle_world(operation)?) } else { None };
        check(c, inner.on_host_with(operation, &awaited, || f(self.state.raw))?)
    }
}

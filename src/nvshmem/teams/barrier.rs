//! Where the members of a team wait for each other.

use super::on_stream::TeamOnStream;
use super::team::Team;
use crate::error::Result;
use crate::nvshmem::state::code::check;
use crate::nvshmem::state::place::Place;
use crate::shared_deadline::SharedDeadline;
use crate::sys;

type Enqueue = unsafe extern "C" fn(sys::nvshmem_team_t, sys::cudaStream_t) -> i32;

impl Team<'_> {
    /// Wraps `nvshmem_barrier`: waits until all members have come, and what each has put by calls on the host has arrived before that. What streams
    /// still have to do is not waited for.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where several PEs share a device without MPS, for which
    /// [`Context::barrier_all`](crate::nvshmem::Context::barrier_all) is there. Where a member does not come, the
    /// [watchdog](crate::nvshmem::ContextOptions::with_watchdog) ends the process; [`Error::Departed`](crate::Error::Departed) where one is known to have ended while
    /// streams still do something with the team.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let (mut team, stream) = (ctx.node()?, Stream::new(ctx.device())?);
    /// team.barrier()?;
    /// team.sync()?;
    /// // Behind what the stream has to do, and before what comes later on it.
    /// team.on(&stream).barrier()?;
    /// team.on(&stream).sync()?;
    /// stream.synchronize()?;
    /// # drop(team);
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "nvshmem_barrier")]
    pub fn barrier(&mut self) -> Result<()> {
        self.on_host().barrier()
    }

    /// Wraps `nvshmem_team_sync`: waits until all members have come. What was put may not have arrived.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    #[doc(alias = "nvshmem_team_sync")]
    pub fn sync(&mut self) -> Result<()> {
        self.on_host().sync()
    }

    /// Calls a function that all members call together, and which has this name. On the host it comes behind what streams do with the team.
    fn meet(
        &mut self,
        Place { operation, stream }: Place<'_>,
        (c, host): (&'static str, unsafe extern "C" fn(sys::nvshmem_team_t) -> i32),
        (c_enqueue, enqueue): (&'static str, Enqueue),
    ) -> Result<()> {
        if let Some(stream) = stream {
            // SAFETY: the team is there, the stream is one of the PE's device, and all members enqueue it as their next one.
            return self.together(operation, c_enqueue, stream, (), |team, stream| unsafe { enqueue(team, stream) });
        }
        self.inner.ready(operation)?;
        self.inner.check_whole(operation)?;
        let (inner, awaited) = (&self.inner, self.state.awaited());
        let _waits = SharedDeadline::begin();
        let _team =
            inner.wait_idle_order(operation, &self.state.order, Some(&awaited), "what the team does on streams")?;
        let _world = if self.state.beside_world { Some(inner.wait_idle_world(operation)?) } else { None };
        // SAFETY: the team is there, and all members call it as their next one.
        check(c, inner.on_host_with(operation, &awaited, || unsafe { host(self.state.raw) })?)
    }
}

impl TeamOnStream<'_, '_> {
    /// Enqueues [`Team::barrier`]. The stream goes on when all members have come to it, and what each has put before, on that stream or by calls on
    /// the host, has arrived. Wraps `nvshmemx_barrier_on_stream`.
    ///
    /// # Errors
    /// See [`TeamOnStream`]; [`Error::Unsupported`](crate::Error::Unsupported) where several PEs share a device without MPS.
    #[doc(alias = "nvshmemx_barrier_on_stream")]
    pub fn barrier(&mut self) -> Result<()> {
        let place = self.place("Team::barrier", "TeamOnStream::barrier");
        self.team.meet(
            place,
            ("nvshmem_barrier", sys::nvshmem_barrier),
            ("nvshmemx_barrier_on_stream", sys::nvshmemx_barrier_on_stream),
        )
    }

    /// Enqueues [`Team::sync`]. The stream goes on when all members have come to it. What was put may not have arrived. Wraps
    /// `nvshmemx_team_sync_on_stream`.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    #[doc(alias = "nvshmemx_team_sync_on_stream")]
    pub fn sync(&mut self) -> Result<()> {
        let place = self.place("Team::sync", "TeamOnStream::sync");
        self.team.meet(
            place,
            ("nvshmem_team_sync", sys::nvshmem_team_sync),
            ("nvshmemx_team_sync_on_stream", sys::nvshmemx_team_sync_on_stream),
        )
    }
}

//! The operations of a team on a stream.

use super::team::Team;
use crate::cuda::Stream;
use crate::nvshmem::state::place::Place;

/// The operations of a [`Team`] on a stream, made by [`Team::on`]. Each method enqueues what the method of the team with the same name does.
///
/// The first of each kind may wait for the other members within the call: see [`Team`].
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId, TeamPe};
/// # use gpucomm::{Device, ReduceOp, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
/// # // SAFETY: the only PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// let (mut world, stream) = (ctx.world()?, Stream::new(ctx.device())?);
/// let mut source = ctx.alloc(3)?;
/// source.copy_from_slice(&stream, &[1.0f64, 2.0, 3.0])?;
/// let mut dest = ctx.alloc::<f64>(3)?;
/// let mut on_stream = world.on(&stream);
/// on_stream.barrier()?;
/// on_stream.reduce(&mut dest, &source, ReduceOp::Sum)?;
/// assert_eq!(dest.to_vec(&stream)?[2], 3.0 * world.n_pes() as f64);
/// // In a team of one PE, each of them copies.
/// let mut on_stream = world.on(&stream);
/// on_stream.reduce_scatter(&mut dest, &source, ReduceOp::Max)?;
/// on_stream.broadcast(&mut dest, &source, TeamPe(0))?;
/// on_stream.broadcast_in_place(&mut dest, TeamPe(0))?;
/// on_stream.fcollect(&mut dest, &source)?;
/// on_stream.alltoall(&mut dest, &source)?;
/// on_stream.sync()?;
/// assert_eq!(dest.to_vec(&stream)?, [1.0, 2.0, 3.0]);
/// # drop((world, source, dest));
/// # ctx.close()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Each method returns what the method of the team returns, but does not wait for the members. All return
/// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a stream of another device, and what [`Stream::launch`] returns.
#[derive(Debug)]
#[must_use = "it enqueues nothing until one of its methods is called"]
pub struct TeamOnStream<'t, 'ctx> {
    pub(crate) team: &'t mut Team<'ctx>,
    /// `None` for the methods of the team itself, on the host.
    stream: Option<&'t Stream>,
}

impl<'ctx> Team<'ctx> {
    /// The operations of this team that enqueue on `stream`: `team.barrier()` waits, `team.on(&stream).barrier()` enqueues.
    #[inline]
    pub fn on<'t>(&'t mut self, stream: &'t Stream) -> TeamOnStream<'t, 'ctx> {
        TeamOnStream { team: self, stream: Some(stream) }
    }

    /// The same operations on the host, which wait.
    #[inline]
    pub(crate) fn on_host(&mut self) -> TeamOnStream<'_, 'ctx> {
        TeamOnStream { team: self, stream: None }
    }
}

impl<'t> TeamOnStream<'t, '_> {
    /// Where an operation is done that has these names.
    #[inline]
    pub(crate) fn place(&self, host: &'static str, enqueued: &'static str) -> Place<'t> {
        Place::new(self.stream, host, enqueued)
    }
}

//! What one member has, for all.

use super::blocks::Blocks;
use super::limits::{by_copies, uses_nccl};
use super::work::{Operands, Work};
use crate::cuda::Stream;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::nvshmem::memory::slice::AsSymmetric;
use crate::nvshmem::memory::slice_mut::AsSymmetricMut;
use crate::nvshmem::memory::there::check_len;
use crate::nvshmem::pe::TeamPe;
use crate::nvshmem::teams::team::Team;
use crate::sys;

impl Team<'_> {
    /// Wraps `nvshmemx_broadcastmem_on_stream`: the elements of `source` on member `root` go to `dest` on all members, `root` included. Both have the same
    /// length, on all of them; the other members' `source` is not read.
    ///
    /// Members write to `dest` of others as soon as they have come themselves, so nobody may still need what is there; a
    /// [barrier](Team::barrier_on_stream) before sees to that. When the stream is there, `dest` of this PE is written, and its `source` may be.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for different lengths, a root that is no member, operands of another context, and a stream of another device; [`Error::Unsupported`] where several PEs
    /// share a device without MPS.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, TeamPe, UniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, UniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let (mut world, stream) = (ctx.world()?, Stream::new(ctx.device())?);
    /// let mut source = ctx.alloc(100)?;
    /// source.fill(&stream, 1.5f32)?;
    /// let mut dest = ctx.alloc::<f32>(100)?;
    /// world.broadcast_on_stream(&mut dest, &source, TeamPe(0), &stream)?;
    /// assert_eq!(dest.to_vec(&stream)?, [1.5; 100]);
    /// // Where the root has its elements in the same place already; and on the host.
    /// world.broadcast_in_place_on_stream(&mut dest, TeamPe(0), &stream)?;
    /// world.broadcast(&mut dest, &source, TeamPe(0))?;
    /// world.broadcast_in_place(&mut dest, TeamPe(0))?;
    /// # drop((world, source, dest));
    /// # ctx.finalize()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn broadcast_on_stream<'a, T: Element>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        root: TeamPe,
        stream: &Stream,
    ) -> Result<()> {
        let operands = Operands { dest: dest.into(), source: Some(source.into()) };
        self.broadcast_for("Team::broadcast_on_stream", operands, root, stream)
    }

    /// Wraps `nvshmemx_broadcastmem_on_stream`, with one buffer for both operands: what `root` has there goes to all members. See
    /// [`broadcast_on_stream`](Self::broadcast_on_stream).
    ///
    /// # Errors
    /// As there.
    pub fn broadcast_in_place_on_stream<'a, T: Element>(
        &mut self,
        buffer: impl AsSymmetricMut<'a, T>,
        root: TeamPe,
        stream: &Stream,
    ) -> Result<()> {
        let operands = Operands { dest: buffer.into(), source: None };
        self.broadcast_for("Team::broadcast_in_place_on_stream", operands, root, stream)
    }

    /// As `nvshmem_broadcastmem`: [`broadcast_on_stream`](Self::broadcast_on_stream) on the context's own stream, and waits for it.
    ///
    /// # Errors
    /// As there; [`Error::Timeout`] where not all members come in time; [`Error::Departed`] soon after the exchange knows that one has ended.
    pub fn broadcast<'a, T: Element>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        root: TeamPe,
    ) -> Result<()> {
        const OPERATION: &str = "Team::broadcast";
        let operands = Operands { dest: dest.into(), source: Some(source.into()) };
        self.waited(OPERATION, |team, stream| team.broadcast_for(OPERATION, operands, root, stream))
    }

    /// As `nvshmem_broadcastmem`, with one buffer for both operands: [`broadcast_in_place_on_stream`](Self::broadcast_in_place_on_stream) on the
    /// context's own stream, and waits for it.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub fn broadcast_in_place<'a, T: Element>(
        &mut self,
        buffer: impl AsSymmetricMut<'a, T>,
        root: TeamPe,
    ) -> Result<()> {
        const OPERATION: &str = "Team::broadcast_in_place";
        let operands = Operands { dest: buffer.into(), source: None };
        self.waited(OPERATION, |team, stream| team.broadcast_for(OPERATION, operands, root, stream))
    }

    fn broadcast_for<T: Element>(
        &mut self,
        operation: &'static str,
        operands: Operands<'_, T>,
        root: TeamPe,
        stream: &Stream,
    ) -> Result<()> {
        self.check_operands(operation, &operands)?;
        self.member_for(operation, "root", root)?;
        let source = &operands.source;
        check_len(
            operation,
            "dest",
            source.map_or(operands.dest.len(), |source| source.len()),
            "as in source",
            operands.dest.len(),
        )?;
        let bytes = operands.dest.len() * size_of::<T>();
        if bytes == 0 {
            return Ok(());
        }
        let c = "nvshmemx_broadcastmem_on_stream";
        if !uses_nccl(&self.inner) && by_copies(&self.state) {
            let needs = "NCCL, or NVSHMEM_DISABLE_CE_COLLECTIVES=1 in the environment: with copy engines the root waits for members that do not know of it";
            return Err(Error::Unsupported { operation, needs: needs.to_owned() });
        }
        let work = Work { operation, c, blocks: Blocks::ONE, bytes, pulls: false, stream };
        // Below the number of PEs, which is a C int.
        let root = root.0 as i32;
        self.work(&work, operands, |team, dest, source, stream| {
            // SAFETY: symmetric memory of that many bytes, which the bracket keeps and orders, and a member; all members enqueue it as their next one.
            unsafe { sys::nvshmemx_broadcastmem_on_stream(team, dest, source, bytes, root, stream) }
        })
    }
}

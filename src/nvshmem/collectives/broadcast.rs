//! What one member has, for all.

use super::blocks::Blocks;
use super::limits::{by_copies, uses_nccl};
use super::work::{Operands, Work};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::nvshmem::memory::slice::AsSymmetric;
use crate::nvshmem::memory::slice_mut::AsSymmetricMut;
use crate::nvshmem::memory::there::check_len;
use crate::nvshmem::pe::TeamPe;
use crate::nvshmem::state::place::Place;
use crate::nvshmem::teams::on_stream::TeamOnStream;
use crate::nvshmem::teams::team::Team;
use crate::sys;

impl Team<'_> {
    /// The elements of `source` on member `root` go to `dest` on all members, `root` included. Both have the same length, on all of them; the other
    /// members' `source` is not read. Waits until it is done. As `nvshmem_broadcastmem`.
    ///
    /// Members write to `dest` of others as soon as they have come themselves, so nobody may still need what is there; a
    /// [barrier](Team::barrier) before sees to that. When it is done, `dest` of this PE is written, and its `source` may be.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for different lengths, a root that is no member, and operands of another context; [`Error::Unsupported`] where several PEs
    /// share a device without MPS; [`Error::Timeout`] where not all members come in time; [`Error::Departed`] soon after the exchange knows that one has ended.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, TeamPe, ContextUniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let (mut world, stream) = (ctx.world()?, Stream::new(ctx.device())?);
    /// let mut source = ctx.alloc(100)?;
    /// source.fill(&stream, 1.5f32)?;
    /// let mut dest = ctx.alloc::<f32>(100)?;
    /// world.on(&stream).broadcast(&mut dest, &source, TeamPe(0))?;
    /// assert_eq!(dest.to_vec(&stream)?, [1.5; 100]);
    /// // Where the root has its elements in the same place already; and on the host.
    /// world.on(&stream).broadcast_in_place(&mut dest, TeamPe(0))?;
    /// world.broadcast(&mut dest, &source, TeamPe(0))?;
    /// world.broadcast_in_place(&mut dest, TeamPe(0))?;
    /// # drop((world, source, dest));
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "nvshmem_broadcastmem")]
    pub fn broadcast<'a, T: Element>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        root: TeamPe,
    ) -> Result<()> {
        self.on_host().broadcast(dest, source, root)
    }

    /// [`broadcast`](Self::broadcast) with one buffer for both operands: what `root` has there goes to all members.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    #[doc(alias = "nvshmem_broadcastmem")]
    pub fn broadcast_in_place<'a, T: Element>(
        &mut self,
        buffer: impl AsSymmetricMut<'a, T>,
        root: TeamPe,
    ) -> Result<()> {
        self.on_host().broadcast_in_place(buffer, root)
    }

    fn broadcast_in<T: Element>(&mut self, place: Place<'_>, operands: Operands<'_, T>, root: TeamPe) -> Result<()> {
        let operation = place.operation;
        self.run(place, |team, stream| {
            team.check_operands(operation, &operands)?;
            team.member_for(operation, "root", root)?;
            let len = operands.dest.len();
            check_len(operation, "dest", operands.source_len(), "as in source", len)?;
            let bytes = len * size_of::<T>();
            if bytes == 0 {
                return Ok(());
            }
            let c = "nvshmemx_broadcastmem_on_stream";
            if !uses_nccl(&team.inner) && by_copies(&team.state) {
                let needs = "NCCL, or NVSHMEM_DISABLE_CE_COLLECTIVES=1 in the environment: with copy engines the root waits for members that do not know of it";
                return Err(Error::Unsupported { operation, needs: needs.to_owned() });
            }
            let work = Work { operation, c, blocks: Blocks::ONE, bytes, pulls: false, stream };
            // Below the number of PEs, which is a C int.
            let root = root.0 as i32;
            team.work(&work, operands, |team, dest, source, stream| {
                // SAFETY: symmetric memory of that many bytes, which the bracket keeps and orders, and a member; all members enqueue it as their next one.
                unsafe { sys::nvshmemx_broadcastmem_on_stream(team, dest, source, bytes, root, stream) }
            })
        })
    }
}

impl TeamOnStream<'_, '_> {
    /// Enqueues [`Team::broadcast`]. Wraps `nvshmemx_broadcastmem_on_stream`.
    #[doc(alias = "nvshmemx_broadcastmem_on_stream")]
    pub fn broadcast<'a, T: Element>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        root: TeamPe,
    ) -> Result<()> {
        let place = self.place("Team::broadcast", "TeamOnStream::broadcast");
        self.team.broadcast_in(place, Operands::new(dest, source), root)
    }

    /// Enqueues [`Team::broadcast_in_place`]. Wraps `nvshmemx_broadcastmem_on_stream`.
    #[doc(alias = "nvshmemx_broadcastmem_on_stream")]
    pub fn broadcast_in_place<'a, T: Element>(
        &mut self,
        buffer: impl AsSymmetricMut<'a, T>,
        root: TeamPe,
    ) -> Result<()> {
        let place = self.place("Team::broadcast_in_place", "TeamOnStream::broadcast_in_place");
        self.team.broadcast_in(place, Operands { dest: buffer.into(), source: None }, root)
    }
}

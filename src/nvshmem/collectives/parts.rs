//! What each member has, for all: the same for each, or a part for each.

use super::blocks::Blocks;
use super::functions::{ALLTOALL, FCOLLECT};
use super::limits::{check_copies, check_offsets, uses_nccl};
use super::words::check_gathered;
use super::work::{Operands, Work, for_each};
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nvshmem::memory::slice::AsSymmetric;
use crate::nvshmem::memory::slice_mut::AsSymmetricMut;
use crate::nvshmem::memory::there::check_len;
use crate::nvshmem::state::place::Place;
use crate::nvshmem::teams::on_stream::TeamOnStream;
use crate::nvshmem::teams::team::Team;

/// Bytes from which on the library divides an fcollect among blocks.
const DIVIDED: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fcollect,
    Alltoall,
}

impl Team<'_> {
    /// An all-gather: the elements of `source` of each member, in the order of the members, become `dest` on all of them. `dest` has `n_pes` times as
    /// many elements as `source`, whose length is the same on all members. Waits until it is done. As `nvshmem_fcollectmem`.
    ///
    /// Members write to `dest` of others as soon as they have come themselves, so nobody may still need what is there; a
    /// [barrier](Team::barrier) before sees to that. When it is done, `dest` of this PE is written, and its `source` may be.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a `dest` of another length, more than 2 GiB in all where the library has no NCCL, and operands of another
    /// context; [`Error::Unsupported`] where several PEs share a device without MPS, where switches work for the team (NVLS) and `source`, or what
    /// comes of it in `dest`, does not begin at a multiple of 4 bytes, and in a capture where `NVSHMEM_DISABLE_CE_COLLECTIVES=0` has copy engines
    /// do it; [`Error::Timeout`] where not all members come in time; [`Error::Departed`] soon after the exchange knows that one has ended.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let (mut world, stream) = (ctx.world()?, Stream::new(ctx.device())?);
    /// let mut source = ctx.alloc(3)?;
    /// source.fill(&stream, ctx.pe().0 as u32)?;
    /// let mut dest = ctx.alloc::<u32>(3 * world.n_pes())?;
    /// world.on(&stream).fcollect(&mut dest, &source)?;
    /// assert_eq!(dest.to_vec(&stream)?[..3], [0; 3]);
    /// world.fcollect(&mut dest, &source)?;
    /// # drop((world, source, dest));
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("all_gather", "nvshmem_fcollectmem"))]
    pub fn fcollect<'a, T: Element>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
    ) -> Result<()> {
        self.on_host().fcollect(dest, source)
    }

    /// Part `j` of `source` of member `i` becomes part `i` of `dest` of member `j`. Each of the two has `n_pes` parts of the same length. Waits until it
    /// is done. As `nvshmem_alltoallmem`.
    ///
    /// Members write to `dest` of others as soon as they have come themselves: see [`fcollect`](Self::fcollect).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for different lengths, one that is no multiple of `n_pes`, more than 2 GiB where the library has no NCCL, and operands
    /// of another context; [`Error::Unsupported`] where several PEs share a device without MPS; [`Error::Timeout`] where not all members come in
    /// time; [`Error::Departed`] soon after the exchange knows that one has ended.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let (mut world, stream) = (ctx.world()?, Stream::new(ctx.device())?);
    /// let mut source = ctx.alloc(world.n_pes())?;
    /// source.fill(&stream, [1u8, 2, 3])?;
    /// let mut dest = ctx.alloc::<[u8; 3]>(world.n_pes())?;
    /// world.on(&stream).alltoall(&mut dest, &source)?;
    /// assert_eq!(dest.to_vec(&stream)?[0], [1, 2, 3]);
    /// world.alltoall(&mut dest, &source)?;
    /// # drop((world, source, dest));
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "nvshmem_alltoallmem")]
    pub fn alltoall<'a, T: Element>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
    ) -> Result<()> {
        self.on_host().alltoall(dest, source)
    }

    /// Each member gets one part from each.
    fn parts<T: Element>(&mut self, kind: Kind, place: Place<'_>, operands: Operands<'_, T>) -> Result<()> {
        let (operation, n_pes, len) = (place.operation, self.n_pes(), operands.dest.len());
        self.run(place, |team, stream| {
            team.check_operands(operation, &operands)?;
            let (inner, state) = (&team.inner, &team.state);
            let (function, part, of, rule) = match kind {
                Kind::Fcollect => (FCOLLECT, operands.source_len(), "source", "those of source for each member"),
                Kind::Alltoall => (ALLTOALL, len / n_pes, "dest", "as many for each member"),
            };
            let gathers = kind == Kind::Fcollect;
            if !gathers {
                check_len(operation, "source", len, "as in dest", operands.source_len())?;
            }
            check_len(operation, "dest", for_each(operation, of, part, n_pes)?, rule, len)?;
            let (bytes, all) = (part * size_of::<T>(), len * size_of::<T>());
            if bytes == 0 {
                return Ok(());
            }
            check_offsets(inner, state, operation, all, gathers)?;
            let mut blocks = Blocks::ONE;
            if gathers {
                blocks = Blocks { threshold: DIVIDED, blocks: (32 / n_pes).max(1) };
                let (dest, source) = operands.places();
                check_gathered(state, operation, blocks, (bytes, dest, source))?;
            }
            if gathers || !uses_nccl(inner) {
                check_copies(state, operation, stream)?;
            }
            let work = Work { operation, c: function.name, blocks, bytes: all, pulls: false, stream };
            team.work(&work, operands, |team, dest, source, stream| {
                // SAFETY: symmetric memory of so many bytes for each member, and of one part or as many, which the bracket keeps and orders; all members
                // enqueue it as their next one.
                unsafe { (function.call)(team, dest, source, bytes, stream) }
            })
        })
    }
}

impl TeamOnStream<'_, '_> {
    /// Enqueues [`Team::fcollect`]. Wraps `nvshmemx_fcollectmem_on_stream`.
    #[doc(alias("all_gather", "nvshmemx_fcollectmem_on_stream"))]
    pub fn fcollect<'a, T: Element>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
    ) -> Result<()> {
        let place = self.place("Team::fcollect", "TeamOnStream::fcollect");
        self.team.parts(Kind::Fcollect, place, Operands::new(dest, source))
    }

    /// Enqueues [`Team::alltoall`]. Wraps `nvshmemx_alltoallmem_on_stream`.
    #[doc(alias = "nvshmemx_alltoallmem_on_stream")]
    pub fn alltoall<'a, T: Element>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
    ) -> Result<()> {
        let place = self.place("Team::alltoall", "TeamOnStream::alltoall");
        self.team.parts(Kind::Alltoall, place, Operands::new(dest, source))
    }
}

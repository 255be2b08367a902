//! What each member has, for all.

use super::blocks::Blocks;
use super::limits::{check_copies, check_offsets};
use super::words::check_gathered;
use super::work::{Operands, Work, for_each};
use crate::cuda::Stream;
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nvshmem::memory::slice::AsSymmetric;
use crate::nvshmem::memory::slice_mut::AsSymmetricMut;
use crate::nvshmem::memory::there::check_len;
use crate::nvshmem::teams::team::Team;
use crate::sys;

/// Bytes from which on the library divides it among blocks.
const DIVIDED: usize = 1 << 20;

impl Team<'_> {
    /// Wraps `nvshmemx_fcollectmem_on_stream`, an all-gather: the elements of `source` of each member, in the order of the members, become `dest` on all of
    /// them. `dest` has `n_pes` times as many elements as `source`, whose length is the same on all members.
    ///
    /// Members write to `dest` of others as soon as they have come themselves, so nobody may still need what is there; a
    /// [barrier](Team::barrier_on_stream) before sees to that. When the stream is there, `dest` of this PE is written, and its `source` may be.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a `dest` of another length, more than 2 GiB in all where the library has no NCCL, operands of another context, and a stream of another device; [`Error::Unsupported`] where several PEs
    /// share a device without MPS, where switches work for the team (NVLS) and `source`, or what comes of it in `dest`, does not begin at a multiple of 4
    /// bytes, and in a capture where `NVSHMEM_DISABLE_CE_COLLECTIVES=0` has copy engines do it.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, UniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, UniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let (mut world, stream) = (ctx.world()?, Stream::new(ctx.device())?);
    /// let mut source = ctx.alloc(3)?;
    /// source.fill(&stream, ctx.pe().0 as u32)?;
    /// let mut dest = ctx.alloc::<u32>(3 * world.n_pes())?;
    /// world.fcollect_on_stream(&mut dest, &source, &stream)?;
    /// assert_eq!(dest.to_vec(&stream)?[..3], [0; 3]);
    /// world.fcollect(&mut dest, &source)?;
    /// # drop((world, source, dest));
    /// # ctx.finalize()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "all_gather")]
    pub fn fcollect_on_stream<'a, T: Element>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        stream: &Stream,
    ) -> Result<()> {
        let operands = Operands { dest: dest.into(), source: Some(source.into()) };
        self.fcollect_for("Team::fcollect_on_stream", operands, stream)
    }

    /// As `nvshmem_fcollectmem`: [`fcollect_on_stream`](Self::fcollect_on_stream) on the context's own stream, and waits for it.
    ///
    /// # Errors
    /// As there; [`Error::Timeout`] where not all members come in time; [`Error::Departed`] soon after the exchange knows that one has ended.
    #[doc(alias = "all_gather")]
    pub fn fcollect<'a, T: Element>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
    ) -> Result<()> {
        const OPERATION: &str = "Team::fcollect";
        let operands = Operands { dest: dest.into(), source: Some(source.into()) };
        self.waited(OPERATION, |team, stream| team.fcollect_for(OPERATION, operands, stream))
    }

    fn fcollect_for<T: Element>(
        &mut self,
        operation: &'static str,
        operands: Operands<'_, T>,
        stream: &Stream,
    ) -> Result<()> {
        self.check_operands(operation, &operands)?;
        let (n_pes, count) = (self.n_pes(), operands.source.map_or(0, |source| source.len()));
        let all = for_each(operation, "source", count, n_pes)?;
        check_len(operation, "dest", all, "those of source for each member", operands.dest.len())?;
        let bytes = count * size_of::<T>();
        if bytes == 0 {
            return Ok(());
        }
        check_offsets(&self.inner, &self.state, operation, bytes * n_pes, true)?;
        let c = "nvshmemx_fcollectmem_on_stream";
        let blocks = Blocks { threshold: DIVIDED, blocks: (32 / n_pes).max(1) };
        let dest = operands.dest.as_symmetric().local().as_raw().addr();
        let source = operands.source.map_or(dest, |source| source.local().as_raw().addr());
        check_gathered(&self.state, operation, blocks, (bytes, dest, source))?;
        check_copies(&self.state, operation, stream)?;
        let work = Work { operation, c, blocks, bytes: bytes * n_pes, pulls: false, stream };
        self.work(&work, operands, |team, dest, source, stream| {
            // SAFETY: symmetric memory of that many bytes, and as many times of it, which the bracket keeps and orders; all members enqueue it as their next one.
            unsafe { sys::nvshmemx_fcollectmem_on_stream(team, dest, source, bytes, stream) }
        })
    }
}

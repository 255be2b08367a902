//! A part of what each member has, for each.

use super::blocks::Blocks;
use super::limits::{check_copies, check_offsets, uses_nccl};
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

impl Team<'_> {
    /// Wraps `nvshmemx_alltoallmem_on_stream`: part `j` of `source` of member `i` becomes part `i` of `dest` of member `j`. Each of the two has `n_pes` parts of
    /// the same length.
    ///
    /// Members write to `dest` of others as soon as they have come themselves, so nobody may still need what is there; a
    /// [barrier](Team::barrier_on_stream) before sees to that. When the stream is there, `dest` of this PE is written, and its `source` may be.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for different lengths, one that is no multiple of `n_pes`, more than 2 GiB where the library has no NCCL, operands of another context, and a stream of another device; [`Error::Unsupported`] where several PEs
    /// share a device without MPS.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, UniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, UniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let (mut world, stream) = (ctx.world()?, Stream::new(ctx.device())?);
    /// let mut source = ctx.alloc(world.n_pes())?;
    /// source.fill(&stream, [1u8, 2, 3])?;
    /// let mut dest = ctx.alloc::<[u8; 3]>(world.n_pes())?;
    /// world.alltoall_on_stream(&mut dest, &source, &stream)?;
    /// assert_eq!(dest.to_vec(&stream)?[0], [1, 2, 3]);
    /// world.alltoall(&mut dest, &source)?;
    /// # drop((world, source, dest));
    /// # ctx.finalize()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn alltoall_on_stream<'a, T: Element>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        stream: &Stream,
    ) -> Result<()> {
        let operands = Operands { dest: dest.into(), source: Some(source.into()) };
        self.alltoall_for("Team::alltoall_on_stream", operands, stream)
    }

    /// As `nvshmem_alltoallmem`: [`alltoall_on_stream`](Self::alltoall_on_stream) on the context's own stream, and waits for it.
    ///
    /// # Errors
    /// As there; [`Error::Timeout`] where not all members come in time; [`Error::Departed`] soon after the exchange knows that one has ended.
    pub fn alltoall<'a, T: Element>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
    ) -> Result<()> {
        const OPERATION: &str = "Team::alltoall";
        let operands = Operands { dest: dest.into(), source: Some(source.into()) };
        self.waited(OPERATION, |team, stream| team.alltoall_for(OPERATION, operands, stream))
    }

    fn alltoall_for<T: Element>(
        &mut self,
        operation: &'static str,
        operands: Operands<'_, T>,
        stream: &Stream,
    ) -> Result<()> {
        self.check_operands(operation, &operands)?;
        let (n_pes, len) = (self.n_pes(), operands.dest.len());
        check_len(operation, "source", len, "as in dest", operands.source.map_or(0, |source| source.len()))?;
        let all = for_each(operation, "dest", len / n_pes, n_pes)?;
        check_len(operation, "dest", all, "as many for each member", len)?;
        let bytes = len / n_pes * size_of::<T>();
        if bytes == 0 {
            return Ok(());
        }
        check_offsets(&self.inner, &self.state, operation, bytes * n_pes, false)?;
        let c = "nvshmemx_alltoallmem_on_stream";
        if !uses_nccl(&self.inner) {
            check_copies(&self.state, operation, stream)?;
        }
        let work = Work { operation, c, blocks: Blocks::ONE, bytes: bytes * n_pes, pulls: false, stream };
        self.work(&work, operands, |team, dest, source, stream| {
            // SAFETY: symmetric memory of as many parts of that many bytes as there are members, which the bracket keeps and orders; all enqueue it as their next one.
            unsafe { sys::nvshmemx_alltoallmem_on_stream(team, dest, source, bytes, stream) }
        })
    }
}

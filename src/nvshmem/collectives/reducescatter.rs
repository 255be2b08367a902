//! What all members have, as one, of which each gets its part.

use super::blocks::Blocks;
use super::limits::check_scratch;
use super::operation::Operation;
use super::words::check_scattered;
use super::work::{Operands, Work, for_each};
use crate::cuda::Stream;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::nvshmem::memory::slice::AsSymmetric;
use crate::nvshmem::memory::slice_mut::AsSymmetricMut;
use crate::nvshmem::memory::there::check_len;
use crate::nvshmem::teams::team::Team;

/// Bytes of all parts from which on the library divides it among blocks, and how many these are.
const BLOCKS: Blocks = Blocks { threshold: 1 << 20, blocks: 16 };

impl Team<'_> {
    /// Wraps `nvshmemx_TYPE_OP_reducescatter_on_stream`: element by element, what `source` holds on all members becomes one by `by`, as in
    /// [`reduce_on_stream`](Self::reduce_on_stream), and each member gets its part of that in `dest`. `source` has `n_pes` times as many elements as `dest`, whose
    /// length is the same on all members.
    ///
    /// When the stream is there, `dest` of this PE is written, and its `source` may be.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a `source` of another length, more than half of `NVSHMEM_REDUCE_SCRATCH_SIZE` (of 512 KiB) in all where NCCL does not do it for the library, operands of another context, and a stream of another device; [`Error::Unsupported`] where several PEs
    /// share a device without MPS, and where switches work for the team (NVLS) and the library has them do it wrongly: a [`Sum`](crate::nvshmem::Sum) of integers of 4 or
    /// 8 bytes, a [`Min`](crate::nvshmem::Min) or [`Max`](crate::nvshmem::Max) of those of 4, a sum of `f16` or `bf16` whose operands do not begin at a multiple of 4 bytes, and what it does not have them do from
    /// a MiB on in all.
    /// NCCL does sums, products, minima and maxima of all types but `i16` and `u16`, where the library has found it.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, Max, Sum, UniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, UniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let (mut world, stream) = (ctx.world()?, Stream::new(ctx.device())?);
    /// let mut source = ctx.alloc(5 * world.n_pes())?;
    /// source.fill(&stream, 2i32)?;
    /// let mut dest = ctx.alloc::<i32>(5)?;
    /// world.reducescatter_on_stream(Sum, &mut dest, &source, &stream)?;
    /// assert_eq!(dest.to_vec(&stream)?, [2 * world.n_pes() as i32; 5]);
    /// world.reducescatter(Max, &mut dest, &source)?;
    /// assert_eq!(dest.to_vec(&stream)?, [2; 5]);
    /// # drop((world, source, dest));
    /// # ctx.finalize()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reducescatter_on_stream<'a, T: Element, O: Operation<T>>(
        &mut self,
        by: O,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        stream: &Stream,
    ) -> Result<()> {
        let operands = Operands { dest: dest.into(), source: Some(source.into()) };
        self.reducescatter_for("Team::reducescatter_on_stream", by, operands, stream)
    }

    /// As `nvshmem_TYPE_OP_reducescatter`: [`reducescatter_on_stream`](Self::reducescatter_on_stream) on the context's own stream, and waits for it.
    ///
    /// # Errors
    /// As there; [`Error::Timeout`] where not all members come in time; [`Error::Departed`] soon after the exchange knows that one has ended.
    pub fn reducescatter<'a, T: Element, O: Operation<T>>(
        &mut self,
        by: O,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
    ) -> Result<()> {
        const OPERATION: &str = "Team::reducescatter";
        let operands = Operands { dest: dest.into(), source: Some(source.into()) };
        self.waited(OPERATION, |team, stream| team.reducescatter_for(OPERATION, by, operands, stream))
    }

    fn reducescatter_for<T: Element, O: Operation<T>>(
        &mut self,
        operation: &'static str,
        _by: O,
        operands: Operands<'_, T>,
        stream: &Stream,
    ) -> Result<()> {
        self.check_operands(operation, &operands)?;
        let count = operands.dest.len();
        let all = for_each(operation, "dest", count, self.n_pes())?;
        let got = operands.source.map_or(0, |source| source.len());
        check_len(operation, "source", all, "those of dest for each member", got)?;
        if count == 0 {
            return Ok(());
        }
        let bytes = all * size_of::<T>();
        let dest = operands.dest.as_symmetric().local().as_raw().addr();
        let source = operands.source.map_or(dest, |source| source.local().as_raw().addr());
        let places = (count, dest, source);
        let by_switch = check_scattered(&self.state, operation, O::HOW.by_switch, (BLOCKS, bytes), places)?;
        if by_switch && i32::try_from(all).is_err() {
            let expected = format!("at most {} elements in all, which switches scatter", i32::MAX);
            return Err(Error::argument(operation, "length", expected, all));
        }
        check_scratch(&self.inner, &self.state, operation, bytes, O::HOW.by_nccl, by_switch)?;
        let function = O::HOW.scatter;
        let work = Work { operation, c: function.name, blocks: BLOCKS, bytes, pulls: true, stream };
        self.work(&work, operands, |team, dest, source, stream| {
            // SAFETY: symmetric memory of that many elements of the function's type, and of as many for each member, which the bracket keeps and orders; all
            // members enqueue it as their next one.
            unsafe { (function.call)(team, dest, source, count, stream) }
        })
    }
}

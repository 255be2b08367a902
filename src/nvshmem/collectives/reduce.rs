//! What all members have, as one: all of it for each, or a part for each.

use super::blocks::Blocks;
use super::limits::check_scratch;
use super::team_reduce::{How, TeamReduce};
use super::words::{check_pairs, check_scattered};
use super::work::{Operands, Work, for_each};
use crate::error::{Error, Result};
use crate::nvshmem::memory::slice::AsSymmetric;
use crate::nvshmem::memory::slice_mut::AsSymmetricMut;
use crate::nvshmem::memory::there::check_len;
use crate::nvshmem::state::place::Place;
use crate::nvshmem::teams::on_stream::TeamOnStream;
use crate::nvshmem::teams::team::Team;
use crate::reduce_op::ReduceOp;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reduce,
    ReduceScatter,
}

impl Kind {
    /// Bytes of all parts from which on the library divides it among blocks, and how many these are.
    fn blocks(self) -> Blocks {
        let threshold = if self == Self::Reduce { 1 << 18 } else { 1 << 20 };
        Blocks { threshold, blocks: 16 }
    }
}

impl Team<'_> {
    /// An all-reduce: element by element, what `source` holds on all members becomes one by `op`, which goes to `dest` on all of them. Both have the same
    /// length, on all members. Waits until it is done. As `nvshmem_TYPE_OP_reduce`.
    ///
    /// There is no form in place: the library sends what it has overwritten, with three members or more.
    ///
    /// Members write to `dest` of others as soon as they have come themselves, so nobody may still need what is there; a
    /// [barrier](Team::barrier) before sees to that. When it is done, `dest` of this PE is written, and its `source` may be.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for different lengths, operands of another context, and an `op` that NVSHMEM does not have for `T`:
    /// [`Avg`](ReduceOp::Avg), and [`And`](ReduceOp::And), [`Or`](ReduceOp::Or) and [`Xor`](ReduceOp::Xor) of floats.
    /// [`Error::Unsupported`] where several PEs share a device without MPS, and for a [`Sum`](ReduceOp::Sum) of `f16` or `bf16` where
    /// switches add for the team and cannot: they add two elements at a time, and the library does
    /// nothing where those do not begin at a multiple of 4 bytes. `dest` and `source` that begin there, and a length that is a multiple of 32 times
    /// the members, are right. [`Error::Timeout`] where not all members come in time; [`Error::Departed`] soon after the exchange knows that one has
    /// ended.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
    /// # use gpucomm::{Device, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let (mut world, stream) = (ctx.world()?, Stream::new(ctx.device())?);
    /// let mut source = ctx.alloc(3)?;
    /// source.copy_from_slice(&stream, &[1.0f64, 2.0, 3.0])?;
    /// let mut dest = ctx.alloc::<f64>(3)?;
    /// world.on(&stream).reduce(&mut dest, &source, ReduceOp::Sum)?;
    /// assert_eq!(dest.to_vec(&stream)?[2], 3.0 * world.n_pes() as f64);
    /// let mut bits = ctx.alloc(1)?;
    /// bits.fill(&stream, 1u16 << ctx.pe().0)?;
    /// let mut any = ctx.alloc::<u16>(1)?;
    /// world.reduce(&mut any, &bits, ReduceOp::Xor)?;
    /// assert_eq!(any.to_vec(&stream)?, [(1 << world.n_pes()) - 1]);
    /// # drop((world, source, dest, bits, any));
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// An element that only moves is not reduced:
    ///
    /// ```compile_fail,E0277
    /// # use gpucomm::ReduceOp;
    /// # use gpucomm::nvshmem::{SymmetricBuffer, Team};
    /// fn any(team: &mut Team, dest: &mut SymmetricBuffer<bool>, source: &SymmetricBuffer<bool>) -> gpucomm::Result<()> {
    ///     team.reduce(dest, source, ReduceOp::Or)
    /// }
    /// ```
    #[doc(alias("all_reduce", "nvshmem_float_sum_reduce"))]
    pub fn reduce<'a, T: TeamReduce>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        op: ReduceOp,
    ) -> Result<()> {
        self.on_host().reduce(dest, source, op)
    }

    /// Element by element, what `source` holds on all members becomes one by `op`, as in [`reduce`](Self::reduce), and each member gets its part of that in
    /// `dest`. `source` has `n_pes` times as many elements as `dest`, whose length is the same on all members. Waits until it is done. As
    /// `nvshmem_TYPE_OP_reducescatter`.
    ///
    /// When it is done, `dest` of this PE is written, and its `source` may be.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a `source` of another length, more than half of `NVSHMEM_REDUCE_SCRATCH_SIZE` (of 512 KiB) in all where NCCL does
    /// not do it for the library, operands of another context, and an `op` that NVSHMEM does not have for `T`, as in
    /// [`reduce`](Self::reduce); [`Error::Unsupported`] where several PEs share a device without MPS, and where
    /// switches work for the team (NVLS) and the library has them do it wrongly: a [`Sum`](ReduceOp::Sum) of integers of 4 or 8 bytes, a
    /// [`Min`](ReduceOp::Min) or [`Max`](ReduceOp::Max) of those of 4, a sum of `f16` or `bf16` whose operands do not begin at a multiple
    /// of 4 bytes, and what it does not have them do from a MiB on in all. Otherwise as [`reduce`](Self::reduce).
    ///
    /// NCCL does sums, products, minima and maxima of all types but `i16` and `u16`, where the library has found it.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
    /// # use gpucomm::{Device, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let (mut world, stream) = (ctx.world()?, Stream::new(ctx.device())?);
    /// let mut source = ctx.alloc(5 * world.n_pes())?;
    /// source.fill(&stream, 2i32)?;
    /// let mut dest = ctx.alloc::<i32>(5)?;
    /// world.on(&stream).reduce_scatter(&mut dest, &source, ReduceOp::Sum)?;
    /// assert_eq!(dest.to_vec(&stream)?, [2 * world.n_pes() as i32; 5]);
    /// world.reduce_scatter(&mut dest, &source, ReduceOp::Max)?;
    /// assert_eq!(dest.to_vec(&stream)?, [2; 5]);
    /// # drop((world, source, dest));
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "nvshmem_float_sum_reducescatter")]
    pub fn reduce_scatter<'a, T: TeamReduce>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        op: ReduceOp,
    ) -> Result<()> {
        self.on_host().reduce_scatter(dest, source, op)
    }

    fn reduced<T: TeamReduce>(
        &mut self,
        kind: Kind,
        place: Place<'_>,
        operands: Operands<'_, T>,
        op: ReduceOp,
    ) -> Result<()> {
        let how = How::new::<T>(place.operation, op)?;
        let (operation, n_pes, blocks, count) = (place.operation, self.n_pes(), kind.blocks(), operands.dest.len());
        self.run(place, |team, stream| {
            team.check_operands(operation, &operands)?;
            let (all, rule, function) = match kind {
                Kind::Reduce => (count, "as in dest", how.reduce),
                Kind::ReduceScatter => {
                    (for_each(operation, "dest", count, n_pes)?, "those of dest for each member", how.scatter)
                }
            };
            check_len(operation, "source", all, rule, operands.source_len())?;
            if count == 0 {
                return Ok(());
            }
            let (bytes, state, (dest, source)) = (all * size_of::<T>(), &team.state, operands.places());
            let by_switch = match kind {
                Kind::Reduce => state.multicast,
                Kind::ReduceScatter => {
                    let (by_switch, places) = (how.by_switch, (count, dest, source));
                    check_scattered(state, operation, by_switch, (blocks, bytes), places)?
                }
            };
            if by_switch && i32::try_from(all).is_err() {
                let expected = format!("at most {} elements in all, which switches reduce", i32::MAX);
                return Err(Error::argument(operation, "length", expected, all));
            }
            match kind {
                Kind::Reduce => check_pairs(state, operation, how.by_switch, blocks, (count, dest, source))?,
                Kind::ReduceScatter => {
                    check_scratch(&team.inner, state, operation, bytes, how.by_nccl, by_switch)?;
                }
            }
            let work = Work { operation, c: function.name, blocks, bytes, pulls: true, stream };
            team.work(&work, operands, |team, dest, source, stream| {
                // SAFETY: symmetric memory of that many elements of the function's type, and of as many or those for each member, which the bracket keeps and
                // orders; all members enqueue it as their next one.
                unsafe { (function.call)(team, dest, source, count, stream) }
            })
        })
    }
}

impl TeamOnStream<'_, '_> {
    /// Enqueues [`Team::reduce`]. Wraps `nvshmemx_TYPE_OP_reduce_on_stream`.
    #[doc(alias = "nvshmemx_TYPE_OP_reduce_on_stream")]
    #[doc(alias("all_reduce", "nvshmemx_float_sum_reduce_on_stream"))]
    pub fn reduce<'a, T: TeamReduce>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        op: ReduceOp,
    ) -> Result<()> {
        let place = self.place("Team::reduce", "TeamOnStream::reduce");
        self.team.reduced(Kind::Reduce, place, Operands::new(dest, source), op)
    }

    /// Enqueues [`Team::reduce_scatter`]. Wraps `nvshmemx_TYPE_OP_reducescatter_on_stream`.
    #[doc(alias = "nvshmemx_TYPE_OP_reducescatter_on_stream")]
    #[doc(alias = "nvshmemx_float_sum_reducescatter_on_stream")]
    pub fn reduce_scatter<'a, T: TeamReduce>(
        &mut self,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        op: ReduceOp,
    ) -> Result<()> {
        let place = self.place("Team::reduce_scatter", "TeamOnStream::reduce_scatter");
        self.team.reduced(Kind::ReduceScatter, place, Operands::new(dest, source), op)
    }
}

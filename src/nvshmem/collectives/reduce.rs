//! What all members have, as one.

use super::blocks::Blocks;
use super::operation::Operation;
use super::words::check_pairs;
use super::work::{Operands, Work};
use crate::cuda::Stream;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::nvshmem::memory::slice::AsSymmetric;
use crate::nvshmem::memory::slice_mut::AsSymmetricMut;
use crate::nvshmem::memory::there::check_len;
use crate::nvshmem::teams::team::Team;

/// Bytes from which on the library divides it among blocks, and how many these are.
const BLOCKS: Blocks = Blocks { threshold: 1 << 18, blocks: 16 };

impl Team<'_> {
    /// Wraps `nvshmemx_TYPE_OP_reduce_on_stream`, an all-reduce: element by element, what `source` holds on all members becomes one by `by`, which goes to `dest`
    /// on all of them. Both have the same length, on all members. `by` is one of [`Sum`], [`Prod`], [`Min`], [`Max`], [`And`], [`Or`] and [`Xor`].
    ///
    /// There is no form in place: the library sends what it has overwritten, with three members or more.
    ///
    /// Members write to `dest` of others as soon as they have come themselves, so nobody may still need what is there; a
    /// [barrier](Team::barrier_on_stream) before sees to that. When the stream is there, `dest` of this PE is written, and its `source` may be.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for different lengths, operands of another context, and a stream of another device; [`Error::Unsupported`] where several PEs
    /// share a device without MPS, and for a [`Sum`] of `f16` or `bf16` where switches add for the team and cannot: they add two elements at a time, and the
    /// library does nothing where those do not begin at a multiple of 4 bytes. `dest` and `source` that begin there, and a length that is a multiple of 32 times
    /// the members, are right.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, Sum, UniqueId, Xor};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, UniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let (mut world, stream) = (ctx.world()?, Stream::new(ctx.device())?);
    /// let mut source = ctx.alloc(3)?;
    /// source.copy_from_slice(&stream, &[1.0f64, 2.0, 3.0])?;
    /// let mut dest = ctx.alloc::<f64>(3)?;
    /// world.reduce_on_stream(Sum, &mut dest, &source, &stream)?;
    /// assert_eq!(dest.to_vec(&stream)?[2], 3.0 * world.n_pes() as f64);
    /// let mut bits = ctx.alloc(1)?;
    /// bits.fill(&stream, 1u16 << ctx.pe().0)?;
    /// let mut any = ctx.alloc::<u16>(1)?;
    /// world.reduce(Xor, &mut any, &bits)?;
    /// assert_eq!(any.to_vec(&stream)?, [(1 << world.n_pes()) - 1]);
    /// # drop((world, source, dest, bits, any));
    /// # ctx.finalize()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Floats have no bits to speak of:
    ///
    /// ```compile_fail,E0277
    /// # use gpucomm::nvshmem::{SymmetricBuffer, Team, Xor};
    /// fn bits(team: &mut Team, dest: &mut SymmetricBuffer<f32>, source: &SymmetricBuffer<f32>) -> gpucomm::Result<()> {
    ///     team.reduce(Xor, dest, source)
    /// }
    /// ```
    ///
    /// [`Sum`]: crate::nvshmem::Sum
    /// [`Prod`]: crate::nvshmem::Prod
    /// [`Min`]: crate::nvshmem::Min
    /// [`Max`]: crate::nvshmem::Max
    /// [`And`]: crate::nvshmem::And
    /// [`Or`]: crate::nvshmem::Or
    /// [`Xor`]: crate::nvshmem::Xor
    #[doc(alias = "all_reduce")]
    pub fn reduce_on_stream<'a, T: Element, O: Operation<T>>(
        &mut self,
        by: O,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        stream: &Stream,
    ) -> Result<()> {
        let operands = Operands { dest: dest.into(), source: Some(source.into()) };
        self.reduce_for("Team::reduce_on_stream", by, operands, stream)
    }

    /// As `nvshmem_TYPE_OP_reduce`: [`reduce_on_stream`](Self::reduce_on_stream) on the context's own stream, and waits for it.
    ///
    /// # Errors
    /// As there; [`Error::Timeout`] where not all members come in time; [`Error::Departed`] soon after the exchange knows that one has ended.
    #[doc(alias = "all_reduce")]
    pub fn reduce<'a, T: Element, O: Operation<T>>(
        &mut self,
        by: O,
        dest: impl AsSymmetricMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
    ) -> Result<()> {
        const OPERATION: &str = "Team::reduce";
        let operands = Operands { dest: dest.into(), source: Some(source.into()) };
        self.waited(OPERATION, |team, stream| team.reduce_for(OPERATION, by, operands, stream))
    }

    fn reduce_for<T: Element, O: Operation<T>>(
        &mut self,
        operation: &'static str,
        _by: O,
        operands: Operands<'_, T>,
        stream: &Stream,
    ) -> Result<()> {
        self.check_operands(operation, &operands)?;
        let count = operands.dest.len();
        check_len(operation, "source", count, "as in dest", operands.source.map_or(0, |source| source.len()))?;
        if count == 0 {
            return Ok(());
        }
        if self.state.multicast && i32::try_from(count).is_err() {
            let expected = format!("at most {} elements, which switches reduce", i32::MAX);
            return Err(Error::argument(operation, "length", expected, count));
        }
        let function = O::HOW.reduce;
        let dest = operands.dest.as_symmetric().local().as_raw().addr();
        let source = operands.source.map_or(dest, |source| source.local().as_raw().addr());
        check_pairs(&self.state, operation, function.name, BLOCKS, (count, dest, source))?;
        let work =
            Work { operation, c: function.name, blocks: BLOCKS, bytes: count * size_of::<T>(), pulls: true, stream };
        self.work(&work, operands, |team, dest, source, stream| {
            // SAFETY: symmetric memory of that many elements of the function's type, which the bracket keeps and orders; all members enqueue it as their next one.
            unsafe { (function.call)(team, dest, source, count, stream) }
        })
    }
}

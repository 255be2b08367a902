//! What reducing operations do with elements.

use std::fmt;

use super::calls::operator::Operator;
use super::pre_mul_sum::PreMulSum;
use crate::element::Reduce;
use crate::reduce_op::ReduceOp;

/// What a reducing operation of NCCL takes: a [`ReduceOp`] or a `&PreMulSum`, each of which converts into it.
///
/// Name the type where a program chooses between the two:
///
/// ```
/// use gpucomm::nccl::Reduction;
/// use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
///
/// # fn main() -> gpucomm::Result<()> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// # clique.spmd(|comm| {
/// # let stream = Stream::new(comm.device())?;
/// let mut x = DeviceBuffer::from_slice(&stream, &[1f32; 10])?;
/// let halves = comm.pre_mul_sum(0.5)?;
/// for (op, sum) in [(Reduction::from(ReduceOp::Sum), 1.0), ((&halves).into(), 0.5)] {
///     x.fill(&stream, 1.0)?;
///     comm.all_reduce(InPlace(&mut x), op, &stream)?;
///     assert_eq!(x.to_vec(&stream)?, [sum * comm.size() as f32; 10]);
/// }
/// # Ok(())
/// # })?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Reduction<'a, T> {
    /// An operation that needs no communicator. NCCL has no `And`, `Or` and `Xor`: they are an
    /// [`InvalidArgument`](crate::Error::InvalidArgument).
    Op(ReduceOp),
    /// The sum of what each rank has multiplied by its own factor.
    PreMul(&'a PreMulSum<'a, T>),
}

// For any type, so that the compiler's message about one that NCCL does not reduce comes once.
impl<T> From<ReduceOp> for Reduction<'_, T> {
    #[inline]
    fn from(op: ReduceOp) -> Self {
        Self::Op(op)
    }
}

impl<'a, 'c: 'a, T> From<&'a PreMulSum<'c, T>> for Reduction<'a, T> {
    #[inline]
    fn from(sum: &'a PreMulSum<'c, T>) -> Self {
        Self::PreMul(sum)
    }
}

impl<T: Reduce> fmt::Debug for Reduction<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Op(op) => op.fmt(f),
            Self::PreMul(sum) => sum.fmt(f),
        }
    }
}

impl<'a, T: Reduce> Reduction<'a, T> {
    /// The same without the type, which was compared with that of the buffers.
    #[inline]
    pub(crate) fn operator(self) -> Operator<'a> {
        match self {
            Self::Op(op) => op.into(),
            Self::PreMul(sum) => sum.operator(),
        }
    }
}

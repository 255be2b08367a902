//! Reductions.

use super::calls::reduction::Reduction;
use super::pre_mul_sum::PreMulSum;
use crate::element::Reduce;
use crate::sys;

/// What a reducing operation does with the elements of the ranks. All ranks must name the same one.
#[derive(Debug, Clone, Copy)]
pub enum ReduceOp<'a, T: Reduce> {
    /// `ncclSum`. Integers wrap around.
    Sum,
    /// `ncclProd`. Integers wrap around.
    Prod,
    /// `ncclMin`. Ignores NaN, unless all elements are; -0 is less than +0.
    Min,
    /// `ncclMax`. Ignores NaN, unless all elements are; -0 is less than +0.
    Max,
    /// `ncclAvg`: the sum divided by the number of ranks; integers are truncated.
    Avg,
    /// The sum of what each rank has multiplied by its own factor.
    PreMul(&'a PreMulSum<'a, T>),
}

impl<'a, T: Reduce> ReduceOp<'a, T> {
    /// The same without the type, which was compared with that of the buffers.
    #[inline]
    pub(crate) fn reduction(self) -> Reduction<'a> {
        Reduction::Common(match self {
            Self::Sum => sys::ncclRedOp_t::ncclSum,
            Self::Prod => sys::ncclRedOp_t::ncclProd,
            Self::Min => sys::ncclRedOp_t::ncclMin,
            Self::Max => sys::ncclRedOp_t::ncclMax,
            Self::Avg => sys::ncclRedOp_t::ncclAvg,
            Self::PreMul(op) => return op.reduction(),
        })
    }
}

//! Reductions.

use super::pre_mul_sum::PreMulSum;
use super::state::inner::Inner;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::sys;

/// What a reducing operation does with the elements of the ranks. All ranks must name the same one.
#[derive(Debug, Clone, Copy)]
pub enum ReduceOp<'a, T: Element> {
    /// `ncclSum`. Integers wrap around.
    Sum,
    /// `ncclProd`. Integers wrap around.
    Prod,
    /// `ncclMin`.
    Min,
    /// `ncclMax`.
    Max,
    /// `ncclAvg`: the sum divided by the number of ranks; integers are truncated.
    Avg,
    /// The sum of what each rank has multiplied by its own factor.
    PreMul(&'a PreMulSum<'a, T>),
}

impl<T: Element> ReduceOp<'_, T> {
    /// What C is told; a pre-multiplied sum must be of `comm`.
    pub(crate) fn to_raw(self, operation: &'static str, comm: &Inner) -> Result<sys::ncclRedOp_t> {
        Ok(match self {
            Self::Sum => sys::ncclRedOp_t::ncclSum,
            Self::Prod => sys::ncclRedOp_t::ncclProd,
            Self::Min => sys::ncclRedOp_t::ncclMin,
            Self::Max => sys::ncclRedOp_t::ncclMax,
            // Of one rank the average is the sum; NCCL multiplies by 1 instead, with a kernel that `one_rank` tells about.
            Self::Avg if comm.size == 1 => sys::ncclRedOp_t::ncclSum,
            Self::Avg => sys::ncclRedOp_t::ncclAvg,
            Self::PreMul(op) => {
                if op.communicator() != comm.id {
                    return Err(Error::argument(
                        operation,
                        "op",
                        "a PreMulSum of this communicator",
                        "one of another communicator",
                    ));
                }
                op.raw()
            }
        })
    }
}

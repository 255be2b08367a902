//! Element types as the host computes with them, and reductions as the library has them.

use gpucomm::nccl::Reduction;
use gpucomm::{Communicator, Reduce, ReduceOp, Result};
pub use gpucomm_reference::{Op, scalar_of};

/// An element type with the arithmetic of the reference.
pub trait Number: Reduce + gpucomm_reference::Number {}

impl<T: Reduce + gpucomm_reference::Number> Number for T {}

/// Reductions as the library has them.
pub trait OpExt {
    /// Calls `body` with the library's form of this reduction, as `comm` needs it.
    fn with<T: Number, R>(self, comm: &Communicator, body: impl FnOnce(Reduction<'_, T>) -> Result<R>) -> Result<R>;
}

impl OpExt for Op {
    fn with<T: Number, R>(self, comm: &Communicator, body: impl FnOnce(Reduction<'_, T>) -> Result<R>) -> Result<R> {
        match self {
            Self::Sum => body(ReduceOp::Sum.into()),
            Self::Prod => body(ReduceOp::Prod.into()),
            Self::Min => body(ReduceOp::Min.into()),
            Self::Max => body(ReduceOp::Max.into()),
            Self::Avg => body(ReduceOp::Avg.into()),
            Self::PreMul => {
                let operator = comm.pre_mul_sum(scalar_of::<T>(comm.rank()))?;
                body((&operator).into())
            }
        }
    }
}

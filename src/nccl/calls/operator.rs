//! The `ncclRedOp_t` of a reduction, and its scalar on the device.

use super::buffers::Elements;
use super::float8;
use super::site::Site;
use crate::cuda::Region;
use crate::error::{Error, Result};
use crate::nccl::rank::another::{Foreign, foreign};
use crate::reduce_op::ReduceOp;
use crate::sys;

/// A [`Reduction`](crate::nccl::Reduction) without the type of its elements, which was compared with that of the buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operator<'a> {
    Common(sys::ncclRedOp_t),
    PreMul {
        op: sys::ncclRedOp_t,
        /// The id of the communicator that it belongs to.
        communicator: u64,
        /// The factor, where the device reads it when an operation runs.
        factor: Option<Region<'a>>,
    },
    /// NCCL does not have it.
    Missing(ReduceOp),
}

/// Folded into the caller, who mostly passes a constant.
impl From<ReduceOp> for Operator<'_> {
    #[inline]
    fn from(op: ReduceOp) -> Self {
        Self::Common(match op {
            ReduceOp::Sum => sys::ncclRedOp_t::ncclSum,
            ReduceOp::Prod => sys::ncclRedOp_t::ncclProd,
            ReduceOp::Min => sys::ncclRedOp_t::ncclMin,
            ReduceOp::Max => sys::ncclRedOp_t::ncclMax,
            ReduceOp::Avg => sys::ncclRedOp_t::ncclAvg,
            ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => return Self::Missing(op),
        })
    }
}

impl<'a> Operator<'a> {
    /// The `ncclRedOp_t` at `site`, for elements that the devices can reduce; a pre-multiplied sum must be of its communicator.
    #[inline]
    pub(crate) fn to_raw(self, site: &Site<'_>, of: Elements) -> Result<sys::ncclRedOp_t> {
        if let Some(kind) = of.kind.filter(|kind| kind.is_float8()) {
            float8::check(site, kind, matches!(self, Self::PreMul { .. }))?;
        }
        match self {
            // Of one rank the average is the sum; NCCL multiplies by 1 instead, with a kernel that `one_rank` tells about.
            Self::Common(sys::ncclRedOp_t::ncclAvg) if site.comm.size == 1 => Ok(sys::ncclRedOp_t::ncclSum),
            Self::Common(op) => Ok(op),
            Self::PreMul { op, communicator, .. } if communicator == site.comm.id => Ok(op),
            Self::PreMul { communicator, .. } => Err(elsewhere(site, communicator)),
            Self::Missing(op) => Err(missing(site.operation, op)),
        }
    }

    /// What the device reads of it.
    #[inline]
    pub(crate) fn scalar(self) -> Option<Region<'a>> {
        match self {
            Self::Common(_) | Self::Missing(_) => None,
            Self::PreMul { factor, .. } => factor,
        }
    }
}

#[cold]
fn missing(operation: &'static str, op: ReduceOp) -> Error {
    const EXPECTED: &str = "Sum, Prod, Min, Max or Avg, which NCCL has";
    Error::argument(operation, "op", EXPECTED, format_args!("{op:?}"))
}

#[cold]
fn elsewhere(site: &Site<'_>, owner: u64) -> Error {
    let Foreign { expected, got, .. } = foreign(site.comm, owner, "a PreMulSum", "one");
    Error::argument(site.operation, "op", expected, got)
}

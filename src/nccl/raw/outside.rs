//! Where NCCL must not be called.

use crate::cuda;
use crate::error::Result;

/// Refuses what enters NCCL within a host function of a stream, and in a process that was forked from one that had used CUDA.
pub(crate) fn outside_of_host_functions(operation: &'static str) -> Result<()> {
    cuda::refuse(operation, "NCCL")
}

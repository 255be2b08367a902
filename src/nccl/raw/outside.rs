//! Where NCCL must not be called.

use crate::cuda;
use crate::error::{Error, Result};

/// Refuses what enters NCCL within a host function of a stream.
pub(crate) fn outside_of_host_functions(operation: &'static str) -> Result<()> {
    if cuda::in_host_function() { Err(refused(operation)) } else { Ok(()) }
}

#[cold]
fn refused(operation: &'static str) -> Error {
    Error::InvalidUsage { operation, reason: "a host function of a stream must not call NCCL".into() }
}

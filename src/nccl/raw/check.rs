//! Results of NCCL calls as errors.

use super::warnings::{copied, of_call};
use crate::codes::NcclCode;
use crate::cuda::Device;
use crate::error::{Error, Result};
use crate::sys;

/// Turns a result code into an error that says which call failed, and what NCCL said of it.
///
/// `ncclInProgress` is not a failure: a blocking communicator never answers it, and the callers that ask a state compare
/// it themselves.
#[inline]
pub(crate) fn check(operation: &'static str, result: sys::ncclResult_t) -> Result<()> {
    if result == sys::ncclResult_t::ncclSuccess || result == sys::ncclResult_t::ncclInProgress {
        return Ok(());
    }
    Err(error(operation, result))
}

/// The error for a code that is known to be one.
#[cold]
pub(crate) fn error(operation: &'static str, result: sys::ncclResult_t) -> Error {
    Error::Nccl { operation, code: NcclCode(result.0 as i32), message: message(result), last: of_call() }
}

/// The loss of one of `devices` that is behind an error of NCCL, which says no more than that a call of CUDA failed.
pub(crate) fn lost(error: &Error, devices: impl IntoIterator<Item = Device>) -> Option<Error> {
    let Error::Nccl { code, .. } = error else { return None };
    if code.as_raw() != sys::ncclResult_t::ncclUnhandledCudaError.0 as i32 {
        return None;
    }
    let lost = |device: Device| device.memory_info().err().filter(|error| matches!(error, Error::DeviceLost { .. }));
    devices.into_iter().find_map(lost)
}

/// What `ncclGetErrorString` says of a code; its number where NCCL knows none.
pub(crate) fn message(result: sys::ncclResult_t) -> String {
    // SAFETY: the call takes any number, and returns null or a static string that ends in NUL.
    let text = unsafe { sys::ncclGetErrorString(result) };
    copied(text).unwrap_or_else(|| format!("unknown code {}", result.0))
}

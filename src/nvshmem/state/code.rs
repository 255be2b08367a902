//! What the functions of NVSHMEM return.

use crate::codes::NvshmemCode;
use crate::error::{Error, Result};
use crate::sys;

/// The error of `operation`, where `code` is one.
pub(crate) fn check(operation: &'static str, code: i32) -> Result<()> {
    if code == sys::NVSHMEMX_SUCCESS { Ok(()) } else { Err(error(operation, code)) }
}

/// What a `code` of `operation` means.
#[cold]
pub(crate) fn error(operation: &'static str, code: i32) -> Error {
    let message = match code {
        sys::NVSHMEMX_ERROR_INVALID_VALUE => "invalid value",
        sys::NVSHMEMX_ERROR_OUT_OF_MEMORY => "out of memory",
        sys::NVSHMEMX_ERROR_NOT_SUPPORTED => "not supported",
        sys::NVSHMEMX_ERROR_SYMMETRY => "not symmetric",
        sys::NVSHMEMX_ERROR_GPU_NOT_SELECTED => "no GPU selected",
        sys::NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED => "a collective launch failed",
        sys::NVSHMEMX_ERROR_INTERNAL => "internal error",
        _ => "unknown",
    };
    Error::Nvshmem {
        operation,
        code: NvshmemCode(code),
        message: format!("{message}; NVSHMEM_DEBUG=WARN in the environment says more"),
    }
}

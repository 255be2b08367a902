//! How calls fail.

use std::ffi::c_int;

use crate::report;
use crate::sys::{NVSHMEMX_ERROR_INVALID_VALUE, cudaError};

/// A call does nothing: what it returns, where it returns a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed(pub(crate) c_int);

/// What a function gives back.
pub(crate) type Outcome<T = ()> = Result<T, Failed>;

/// A mistake that the library answers by the end of the process, a wait for ever, or with what nobody knows. It is reported; where
/// that does not end the process, the call does nothing.
pub(crate) fn wrong(text: impl AsRef<str>) -> Failed {
    report::violation(text);
    Failed(NVSHMEMX_ERROR_INVALID_VALUE)
}

/// The library refuses this with a status, and says why on stderr.
pub(crate) fn refused(status: c_int, text: impl AsRef<str>) -> Failed {
    report::line(format!("{}: {}", report::call(), text.as_ref()));
    Failed(status)
}

/// CUDA refuses what the library asks of it, which ends the process.
pub(crate) fn cuda(what: &str, error: cudaError) -> Failed {
    wrong(format!("{what}: CUDA's error {}, at which NVSHMEM ends the process", error.0))
}

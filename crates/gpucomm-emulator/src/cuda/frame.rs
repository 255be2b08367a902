//! The frame of every function.

use super::core::safety::{Class, Function};
use super::core::{capture, fork};
use super::tasks::host;
use crate::report;
use crate::sys::cudaError;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Refuses to work in a forked child, inside a host function, or beside a capture that the function would spoil, and stops panics.
pub(super) fn guarded(function: Function, work: impl FnOnce() -> Result<(), cudaError>) -> Result<(), cudaError> {
    let Function { name, class } = function;
    fork::check()?;
    if host::is_callback() {
        report::violation(format!("{name} was called inside a host function of a stream"));
        return Err(cudaError::cudaErrorNotPermitted);
    }
    let checked = || {
        if class == Class::Unsafe {
            capture::check()?;
        }
        work()
    };
    catch_unwind(AssertUnwindSafe(|| report::during(name, checked))).unwrap_or_else(|payload| {
        // What was thrown may itself panic when it is dropped.
        std::mem::forget(payload);
        report::violation(format!("{name}: the emulator panicked, which is a mistake in it"));
        Err(cudaError::cudaErrorUnknown)
    })
}

//! The C functions, thin over the modules that do the work.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]

mod device;
mod driver;
mod memory;
mod streams;

pub use device::*;
pub use memory::*;
pub use streams::*;

use super::core::stream::{self, Stream};
use super::core::{capture, driver_lock, fork};
use super::error;
use super::work::host;
use crate::emulator::report;
use crate::sys::{cudaError, cudaStream_t};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The frame of every function: refuses to work in a forked child or inside a host function, and stops panics.
pub(super) fn guarded(name: &'static str, work: impl FnOnce() -> Result<(), cudaError>) -> Result<(), cudaError> {
    fork::check()?;
    if host::is_callback() {
        report::violation(format!("{name} was called inside a host function of a stream"));
        return Err(cudaError::cudaErrorNotPermitted);
    }
    catch_unwind(AssertUnwindSafe(|| report::during(name, work))).unwrap_or_else(|payload| {
        // What was thrown may itself panic when it is dropped.
        std::mem::forget(payload);
        report::violation(format!("{name}: the emulator panicked, which is a mistake in it"));
        Err(cudaError::cudaErrorUnknown)
    })
}

/// The same for functions of the runtime, which remember their errors.
fn runtime(name: &'static str, work: impl FnOnce() -> Result<(), cudaError>) -> cudaError {
    let error = guarded(name, work).err().unwrap_or(cudaError::cudaSuccess);
    error::remember(error);
    error
}

/// The same for those that enqueue on a stream.
fn launch(
    name: &'static str,
    stream: cudaStream_t,
    work: impl FnOnce(&Arc<Stream>) -> Result<(), cudaError>,
) -> cudaError {
    runtime(name, || {
        let stream = stream::find(stream)?;
        let _shared = driver_lock::shared(stream.device);
        work(&stream)
    })
}

/// The same for those that must not be called while a stream is being captured.
fn unsafe_in_capture(name: &'static str, work: impl FnOnce() -> Result<(), cudaError>) -> cudaError {
    runtime(name, || {
        capture::check()?;
        work()
    })
}

/// A place for a result that the caller gave us.
struct Out<T>(*mut T);

impl<T> Out<T> {
    /// The place at `ptr`, which must not be null.
    ///
    /// # Safety
    /// A `ptr` that is not null points to a `T` that may be written until the function returns.
    unsafe fn new(ptr: *mut T) -> Result<Self, cudaError> {
        if ptr.is_null() { Err(cudaError::cudaErrorInvalidValue) } else { Ok(Self(ptr)) }
    }

    fn set(self, value: T) {
        // SAFETY: `new` was promised a place that may be written.
        unsafe { self.0.write(value) };
    }
}

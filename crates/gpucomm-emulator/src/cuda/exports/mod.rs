//! The C functions, thin over the modules that do the work.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]

mod device;
mod driver;
mod graphs;
mod memory;
mod multicast;
mod streams;
mod vmm;

pub use device::*;
pub use graphs::*;
pub use memory::*;
pub use streams::*;

use super::core::device::current;
use super::core::driver_lock;
use super::core::safety::{Class, Function};
use super::core::stream::{self, Stream};
use super::error;
use super::frame::guarded;
use crate::sys::{cudaError, cudaStream_t};
use std::sync::Arc;

/// The frame of functions of the runtime, which remember their errors.
fn runtime(function: Function, work: impl FnOnce() -> Result<(), cudaError>) -> cudaError {
    if function.class != Class::Free
        && let Ok(device) = current()
    {
        device.set_up();
    }
    let error = guarded(function, work).err().unwrap_or(cudaError::cudaSuccess);
    error::remember(error);
    error
}

/// The same for those that enqueue on a stream.
fn launch(
    function: Function,
    stream: cudaStream_t,
    work: impl FnOnce(&Arc<Stream>) -> Result<(), cudaError>,
) -> cudaError {
    runtime(function, || {
        let stream = stream::find(stream)?;
        let _shared = driver_lock::shared(stream.device);
        work(&stream)
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

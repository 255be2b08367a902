//! The C functions of CUDA: those of the runtime, and those of the driver that are looked up by name.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]

pub mod driver;
pub mod runtime;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::core::device::current;
use super::core::stream::{self, Stream};
use super::error;
use super::tasks::host;
use crate::cuda::core::{capture, device};
use crate::lock::RwLockReadGuard;
use crate::report;
use crate::sys::{cudaError, cudaStream_t};
use crate::table::{Argument, Export, Function, OnNull};

/// The functions of the library that are declared.
pub(crate) const TABLES: &[&[Export]] =
    &[runtime::DEVICES, runtime::MEMORY, runtime::STREAMS_AND_EVENTS, runtime::GRAPHS];

/// What a function does to captures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Concerns no work: may be called at any time.
    Any,
    /// The same, and needs no context: every other function of the runtime creates that of the current device.
    Free,
    /// Puts work on the stream that it is given. If that is being captured, the work becomes a node of the graph, if a graph
    /// can hold it.
    Enqueues,
    /// Concerns work of the whole device, or asks for its progress, which a capture only records. CUDA calls these
    /// potentially unsafe: they fail, and invalidate the captures that the calling thread must respect.
    Unsafe,
    /// The same, unless what it asks about is part of a capture itself: its body checks that.
    Asks,
}

/// Refuses to work in a forked child, inside a host function, or beside a capture that the function would invalidate, and
/// catches panics.
fn guarded<E: From<cudaError>>(function: Function<Class>, body: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    let Function { name, class, .. } = function;
    device::refuse_in_fork()?;
    if host::is_callback() {
        report::violation(format!("{name} was called inside a host function of a stream"));
        return Err(cudaError::cudaErrorNotPermitted.into());
    }
    let checked = || {
        if class == Class::Unsafe {
            capture::check()?;
        }
        body()
    };
    catch_unwind(AssertUnwindSafe(|| report::during(name, checked))).unwrap_or_else(|payload| {
        // To drop the payload of a panic may panic again.
        std::mem::forget(payload);
        report::violation(format!("{name}: the emulator panicked, which is a mistake in it"));
        Err(cudaError::cudaErrorUnknown.into())
    })
}

/// The frame of functions of the runtime, which remember their errors.
fn frame(function: Function<Class>, body: impl FnOnce() -> Result<(), cudaError>) -> cudaError {
    if function.class != Class::Free
        && let Ok(device) = current()
    {
        device.set_up();
    }
    let error = guarded(function, body).err().unwrap_or(cudaError::cudaSuccess);
    error::remember(error);
    error
}

impl OnNull for cudaError {
    fn null() -> Self {
        Self::cudaErrorInvalidValue
    }
}

/// The stream of a call that enqueues on it, which shares the lock of its device's driver.
#[derive(Debug)]
pub struct OnStream {
    stream: Arc<Stream>,
    _shared: Option<RwLockReadGuard<'static, ()>>,
}

impl<E: From<cudaError>> Argument<E> for OnStream {
    type C = cudaStream_t;

    unsafe fn take(passed: cudaStream_t) -> Result<Self, E> {
        let stream = stream::find(passed)?;
        let _shared = device::share_driver(stream.device);
        Ok(Self { stream, _shared })
    }
}

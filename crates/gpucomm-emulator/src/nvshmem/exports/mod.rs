//! The C functions of NVSHMEM. Each hands over to the call of its noun.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]

pub mod by_type;
pub mod collectives;
pub mod context;
pub mod memory;
pub mod teams;
pub mod transfers;

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cuda::core::{capture, device};
use crate::cuda::tasks::host;
use crate::nvshmem::basics::{Failed, Outcome, cuda, wrong};
use crate::report;
use crate::sys::NVSHMEMX_ERROR_INTERNAL;
use crate::table::{Export, Function, OnNull};

/// The functions of the library that are declared.
pub(crate) const TABLES: &[&[Export]] = &[
    context::CONTEXT,
    context::KERNELS,
    memory::MEMORY,
    teams::TEAMS,
    teams::ORDER,
    transfers::DENSE,
    transfers::STRIDED,
    transfers::ELEMENTS,
    transfers::WITH_SIGNAL,
    transfers::SIGNALS,
    transfers::WAITS,
    collectives::MOVING,
    collectives::REDUCTIONS,
];

/// What a function does to other threads, streams and captures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Looks something up.
    Any,
    /// Puts work on a stream.
    Enqueues,
    /// Waits for streams of the library, which no capture of this thread survives.
    Waits,
}

/// How many threads are inside.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

struct Inside;

impl Inside {
    fn enter() -> Self {
        if INSIDE.fetch_add(1, Ordering::AcqRel) > 0 {
            report::violation(
                "two threads are inside NVSHMEM at once, expected one after the other (NVSHMEM_THREAD_SERIALIZED)",
            );
        }
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Refuses a forked child, a host function, a second thread and a capture that the function would invalidate, and catches
/// panics.
fn guarded<T>(function: Function<Class>, body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let Function { name, class, .. } = function;
    let framed = || {
        if class == Class::Any {
            return body();
        }
        if let Err(error) = device::refuse_in_fork() {
            return Err(cuda("a forked process has no devices", error));
        }
        if host::is_callback() {
            return Err(wrong("called inside a host function of a stream"));
        }
        let _inside = Inside::enter();
        if class == Class::Waits && capture::check().is_err() {
            return Err(wrong(
                "it waits for streams of its own beside a stream capture, which that spoils: NVSHMEM ends the process",
            ));
        }
        body()
    };
    catch_unwind(AssertUnwindSafe(|| report::during(name, framed))).unwrap_or_else(|payload| {
        // To drop the payload of a panic may panic again.
        std::mem::forget(payload);
        report::violation(format!("{name}: the emulator panicked, which is a mistake in it"));
        Err(Failed(NVSHMEMX_ERROR_INTERNAL))
    })
}

/// The frame of functions that return a status.
fn frame(function: Function<Class>, body: impl FnOnce() -> Outcome) -> c_int {
    guarded(function, body).map_or_else(|Failed(status)| status, |()| 0)
}

/// The frame of functions that return something else, or nothing.
fn frame_of<A: Answer, B: FnOnce() -> Outcome<A::C>>(function: Function<Class>, body: B) -> A::C {
    guarded(function, body).unwrap_or_else(|_| A::failed())
}

/// What a function returns instead of a status.
pub trait Answer {
    type C;

    /// What it returns if it fails.
    fn failed() -> Self::C;
}

/// A number of a PE, or of PEs: -1 if the function fails.
#[derive(Debug)]
pub struct Pes;

impl Answer for Pes {
    type C = c_int;

    fn failed() -> c_int {
        -1
    }
}

impl Answer for *mut c_void {
    type C = Self;

    fn failed() -> Self {
        std::ptr::null_mut()
    }
}

macro_rules! answers {
    ($($type:ty)*) => {$(
        impl Answer for $type {
            type C = Self;

            fn failed() -> Self {
                Self::default()
            }
        }
    )*};
}

answers! { () u8 u16 u32 u64 }

impl OnNull for Failed {
    fn null() -> Self {
        wrong("the place for the result is null")
    }
}

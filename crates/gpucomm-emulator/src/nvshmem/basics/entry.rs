//! The frame of every function, and how it fails.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cuda::core::{capture, fork};
use crate::cuda::tasks::host;
use crate::report;
use crate::sys::{NVSHMEMX_ERROR_INTERNAL, NVSHMEMX_ERROR_INVALID_VALUE, cudaError};

/// A call does nothing: what it returns, where it returns a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed(pub(crate) c_int);

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

/// What a function does to who is beside it.
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

/// Runs the body of one C function: lets no panic through, and answers with `failed` where it cannot be done.
pub(crate) fn entry<T>(
    name: &'static str,
    class: Class,
    failed: impl FnOnce(c_int) -> T,
    body: impl FnOnce() -> Outcome<T>,
) -> T {
    let framed = || {
        if class == Class::Any {
            return body();
        }
        if let Err(error) = fork::check() {
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
    let done = catch_unwind(AssertUnwindSafe(|| report::during(name, framed)));
    let done = done.unwrap_or_else(|payload| {
        // What was thrown may itself panic when it is dropped.
        std::mem::forget(payload);
        report::violation(format!("{name}: the emulator panicked, which is a mistake in it"));
        Err(Failed(NVSHMEMX_ERROR_INTERNAL))
    });
    done.unwrap_or_else(|Failed(status)| failed(status))
}

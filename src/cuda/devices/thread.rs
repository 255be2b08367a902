//! What is known about the calling thread.

use std::cell::Cell;

use crate::error::{Error, Result};

/// What is known about the calling thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Thread {
    /// Nothing yet: its current device may be one that nobody asked for.
    Fresh,
    /// Its current device is one that this process uses.
    Ready,
    /// It runs a host function of a stream, where CUDA calls are not allowed.
    InHostFunction,
}

thread_local! {
    pub(super) static THREAD: Cell<Thread> = const { Cell::new(Thread::Fresh) };
}

/// Refuses `operation`, which calls CUDA or may, within a host function of a stream.
pub(crate) fn outside_host_functions(operation: &'static str) -> Result<()> {
    if in_host_function() {
        return Err(Error::InvalidUsage {
            operation,
            reason: String::from("a host function of a stream must not call CUDA"),
        });
    }
    Ok(())
}

/// Whether this thread is running a host function of a stream, where CUDA must not be called.
pub(crate) fn in_host_function() -> bool {
    THREAD.get() == Thread::InHostFunction
}

/// Runs `f` as a host function of a stream. It must not unwind.
pub(crate) fn as_host_function(f: impl FnOnce()) {
    let before = THREAD.replace(Thread::InHostFunction);
    f();
    THREAD.set(before);
}

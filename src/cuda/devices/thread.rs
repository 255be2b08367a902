//! What is known about the calling thread.

use std::cell::Cell;
use std::sync::Once;

use crate::error::{Error, Result};
use crate::lock;
pub(crate) use crate::lock::is_forked;

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

/// Notes that this process uses CUDA, which does not work in children that are forked from now on.
pub(super) fn note_use() {
    extern "C" fn forked() {
        lock::note_fork();
        // The only thread of the child. What it has seen in the parent does not count.
        THREAD.set(Thread::Fresh);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function lives as long as the process, and sets two numbers, which a child may do at once. Without memory for it
        // nothing is registered, and CUDA itself refuses the calls of a child.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
}

/// Refuses `operation`, which calls CUDA or may, where it [is off limits](is_off_limits).
pub(crate) fn outside_host_functions(operation: &'static str) -> Result<()> {
    refuse(operation, "CUDA")
}

/// Refuses `operation`, which calls `library` or may, where CUDA [is off limits](is_off_limits).
pub(crate) fn refuse(operation: &'static str, library: &str) -> Result<()> {
    if is_off_limits() { Err(refused(operation, library)) } else { Ok(()) }
}

/// Refuses `operation`, which calls `library` or waits for threads that do, in a forked child alone.
pub(crate) fn refuse_in_child(operation: &'static str, library: &str) -> Result<()> {
    if is_forked() { Err(refused(operation, library)) } else { Ok(()) }
}

#[cold]
fn refused(operation: &'static str, library: &str) -> Error {
    let reason = if is_forked() {
        format!(
            "{library} does not work in a process that was forked from one that had used CUDA: fork before the first use of a device, or \
             have the child run a program by exec"
        )
    } else {
        format!("a host function of a stream must not call {library}")
    };
    Error::InvalidUsage { operation, reason }
}

/// Whether this thread must not call CUDA: it runs a host function of a stream, or this process [was forked](is_forked).
pub(crate) fn is_off_limits() -> bool {
    THREAD.get() == Thread::InHostFunction || is_forked()
}

/// Runs `f` as a host function of a stream. It must not unwind.
pub(crate) fn as_host_function(f: impl FnOnce()) {
    let before = THREAD.replace(Thread::InHostFunction);
    f();
    THREAD.set(before);
}

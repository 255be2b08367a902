//! The end of a communicator: abort, or finalize and destroy. Each happens exactly once.

use std::sync::Arc;
use std::time::Duration;

use super::check::check;
use super::inner::{Handle, Inner};
use super::{detached, interrupt};
use crate::cuda::Worker;
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};
use crate::sys;

/// How long an end may take that nobody gave a deadline.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// How long a call may take before it counts as waiting for a peer. One that goes on must not be interrupted: what it uses
/// would be taken from it.
const BLOCKED: Duration = Duration::from_secs(1);

/// What became of an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum AbortOutcome {
    /// The communicator is gone, and its operations have left the device.
    Done,
    /// It had been aborted or closed before.
    Already,
    /// Aborting goes on by itself, or is not possible because a thread stays inside NCCL. Nothing of the communicator is
    /// freed then.
    StillRunning,
}

/// Ends `inner` because of `cause`, unless somebody else has ended it.
pub(crate) fn abort(inner: &Arc<Inner>, cause: Error, deadline: &Deadline) -> AbortOutcome {
    if !inner.condemn(cause) {
        return AbortOutcome::Already;
    }
    finish_abort(inner, deadline)
}

/// Ends `inner`, which the caller has condemned.
pub(crate) fn finish_abort(inner: &Arc<Inner>, deadline: &Deadline) -> AbortOutcome {
    let mut guard = match inner.lock_within(&deadline.sooner(BLOCKED)) {
        Some(guard) => guard,
        None => {
            // Somebody stays inside NCCL, waiting for a peer.
            if let Some(handle) = inner.raw() {
                interrupt::interrupt(inner, handle, deadline);
            }
            match inner.lock_within(deadline) {
                Some(guard) => guard,
                None => return AbortOutcome::StillRunning,
            }
        }
    };
    let Some(handle) = guard.handle.take() else { return AbortOutcome::Already };
    guard.streams.clear();
    drop(guard);
    inner.forget_raw();
    let keep = Arc::clone(inner);
    let aborted = detached::run("ncclCommAbort", deadline, move || {
        // SAFETY: the handle was taken out of its place, so nobody else has it, and no thread is inside a call on it.
        // NCCL reads strings of the configuration until it is gone: `keep` has them.
        let _ = unsafe { sys::ncclCommAbort(handle.raw()) };
        keep.set_ended();
    });
    match aborted {
        Ok(_) => AbortOutcome::Done,
        Err(_) => AbortOutcome::StillRunning,
    }
}

/// Ends `inner` because of `cause`, unless somebody else has ended it; on a thread of its own.
pub(crate) fn abort_without_waiting(inner: &Arc<Inner>, cause: Error) {
    if inner.condemn(cause) {
        let inner = Arc::clone(inner);
        let _ = detached::start("abort", move || finish_abort(&inner, &Deadline::after(GRACE)));
    }
}

/// Ends many communicators at once: each waits for the others inside NCCL, so they go in parallel.
pub(crate) fn abort_all(members: &[Arc<Inner>], cause: &Error, deadline: &Deadline) -> AbortOutcome {
    finish_all(condemn_all(members, cause), deadline)
}

/// Condemns many communicators: those that the caller must end. All of them before the first is aborted, so that every thread
/// that notices gets this cause.
pub(crate) fn condemn_all(members: &[Arc<Inner>], cause: &Error) -> Vec<Arc<Inner>> {
    members.iter().filter(|inner| inner.condemn(cause.clone())).cloned().collect()
}

/// Ends communicators that the caller has condemned, in parallel.
pub(crate) fn finish_all(condemned: Vec<Arc<Inner>>, deadline: &Deadline) -> AbortOutcome {
    let mut outcome = AbortOutcome::Already;
    let deadline = *deadline;
    let threads: Vec<_> =
        condemned.into_iter().map(|inner| detached::start("abort", move || finish_abort(&inner, &deadline))).collect();
    for thread in threads {
        let one = match thread {
            Ok(receiver) => receiver.recv_timeout(deadline.remaining()).unwrap_or(AbortOutcome::StillRunning),
            Err(_) => AbortOutcome::StillRunning,
        };
        if outcome != AbortOutcome::StillRunning {
            outcome = one;
        }
    }
    outcome
}

/// Finalizes and destroys `inner` after its operations have completed.
pub(crate) fn close(inner: &Arc<Inner>, deadline: &Deadline) -> Result<()> {
    const CLOSE: &str = "close";
    if let Some(error) = inner.refusal(CLOSE) {
        return Err(error);
    }
    wait_for_work(inner, deadline)?;
    super::reaper::drain(inner.id, deadline);
    // What it did is well, then, whatever becomes of the end.
    inner.health()?;
    if !inner.retire() {
        return Err(inner.refusal(CLOSE).unwrap_or(Error::Aborted { operation: CLOSE, reason: "unknown".into() }));
    }
    let Some(mut guard) = inner.lock_within(deadline) else {
        return Err(deadline.error(CLOSE, "another thread is inside a call on this communicator"));
    };
    let Some(Handle(raw)) = guard.handle else { return Ok(()) };
    // Destroying a communicator that has an error leaves NCCL's group depth raised on this thread.
    let failed = async_error(raw);
    let Some(handle) = guard.handle.take() else { return Ok(()) };
    guard.streams.clear();
    drop(guard);
    inner.forget_raw();
    let keep = Arc::clone(inner);
    if let Err(error) = failed {
        let _ = detached::run("ncclCommAbort", deadline, move || {
            // SAFETY: the handle was taken out of its place, so nobody else has it, and no thread is inside a call on it.
            let _ = unsafe { sys::ncclCommAbort(handle.raw()) };
            keep.set_ended();
        });
        return Err(error);
    }
    detached::run("ncclCommDestroy", deadline, move || {
        // SAFETY: the handle was taken out of its place, so nobody else has it; it had no error when it was last asked.
        check("ncclCommFinalize", unsafe { sys::ncclCommFinalize(handle.raw()) })?;
        // SAFETY: as above; a finalized communicator is destroyed once.
        check("ncclCommDestroy", unsafe { sys::ncclCommDestroy(handle.raw()) })?;
        keep.set_ended();
        Ok(())
    })?
}

/// Wraps `ncclCommGetAsyncError`; the caller holds the lock of the communicator that `raw` is of.
pub(crate) fn async_error(raw: sys::ncclComm_t) -> Result<()> {
    const FUNCTION: &str = "ncclCommGetAsyncError";
    let mut state = sys::ncclResult_t::ncclSuccess;
    // SAFETY: a live communicator under its lock, and a place for the answer.
    check(FUNCTION, unsafe { sys::ncclCommGetAsyncError(raw, &mut state) })?;
    check(FUNCTION, state)
}

/// Waits until all that was enqueued is done.
fn wait_for_work(inner: &Arc<Inner>, deadline: &Deadline) -> Result<()> {
    const CLOSE: &str = "close";
    let streams = match inner.lock_within(deadline) {
        Some(guard) => guard.streams.all().to_vec(),
        None => return Err(deadline.error(CLOSE, "another thread is inside a call on this communicator")),
    };
    for stream in streams {
        let mut round = 0;
        while !stream.is_idle()? {
            if let Some(error) = inner.refusal(CLOSE) {
                return Err(error);
            }
            if deadline.expired() {
                return Err(deadline.error(CLOSE, format!("rank {} has work in flight", inner.rank)));
            }
            backoff(round);
            round += 1;
        }
    }
    Ok(())
}

/// What dropping a communicator does: it is closed if that succeeds within [`GRACE`], else aborted.
pub(crate) fn drop_communicator(inner: &Arc<Inner>) {
    if !inner.is_active() {
        return;
    }
    let deadline = Deadline::after(GRACE.min(inner.timeout()));
    if std::thread::panicking() || close(inner, &deadline).is_err() {
        let cause = Error::Aborted { operation: "drop", reason: "it was dropped with work in flight".into() };
        let _ = abort(inner, cause, &Deadline::after(GRACE));
    }
}

//! The end of a communicator: abort, or finalize and destroy. Each happens exactly once, on the communicator's own thread.
//!
//! An abort raises NCCL's flag on all members before anything else may wait for a device: kernels that spin look at it, and
//! what waits for them, a driver call of ours among others, waits until they see it. Hence no CUDA call here comes before
//! the flags, and no lock: the gate is shut, and who is not inside NCCL is not waited for.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use super::{health, interrupt, reaper};
use crate::cuda::{self, Worker};
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};
#[cfg(nccl_ge_2_28_7)]
use crate::known_bugs;
use crate::nccl::raw::check::check;
use crate::nccl::state::inner::Inner;
use crate::nccl::wait::busy::busy as busy_elsewhere;
use crate::nccl::wait::departure;
use crate::sys;

/// How long an end may take that nobody gave a deadline.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

const CLOSE: &str = "close";

/// How long the lock is waited for, for what can be left undone.
const BUSY: Duration = Duration::from_secs(1);

/// Rounds of a wait for work after which a rank looks whether it waits for others.
const SOME: u32 = 256;

/// What became of an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum AbortOutcome {
    /// The communicator is gone, and its operations have left the device.
    Done,
    /// It had been aborted or closed before, and is gone.
    Already,
    /// Ending goes on by itself, or is not possible because a thread stays inside NCCL. Nothing of the communicator is
    /// freed then.
    StillRunning,
}

/// Ends `members` because of `cause`, but for those that somebody else has ended, and waits for the end of all.
pub(crate) fn abort(members: &[Arc<Inner>], cause: &Error, deadline: &Deadline) -> AbortOutcome {
    let all = everybody(members, cause);
    let first = abort_all(&all, cause);
    match wait_for_end(&all, deadline) {
        false => AbortOutcome::StillRunning,
        true if first => AbortOutcome::Done,
        true => AbortOutcome::Already,
    }
}

/// Whether NCCL has let go of all `members` before the deadline.
fn wait_for_end(members: &[Arc<Inner>], deadline: &Deadline) -> bool {
    let mut round = 0;
    while !members.iter().all(|inner| inner.has_ended()) {
        // A host function keeps its stream waiting, and so perhaps the end.
        if deadline.expired() || cuda::in_host_function() {
            return false;
        }
        backoff(round);
        round += 1;
    }
    true
}

/// As [`abort`], without waiting; whether any of them was active.
pub(crate) fn start_abort(members: &[Arc<Inner>], cause: &Error) -> bool {
    abort_all(&everybody(members, cause), cause)
}

/// `members`, and the other ranks of this process that have to end with those that are active.
fn everybody(members: &[Arc<Inner>], cause: &Error) -> Vec<Arc<Inner>> {
    let mut all = members.to_vec();
    for mate in members.iter().filter(|inner| inner.is_active()).flat_map(|inner| inner.mates(cause)) {
        if !all.iter().any(|inner| inner.id == mate.id) {
            all.push(mate);
        }
    }
    all
}

/// Aborts those of `all` that are active; whether there are any.
fn abort_all(all: &[Arc<Inner>], cause: &Error) -> bool {
    // All are condemned before the first is aborted, so that every thread that notices gets this cause, and nobody finds results well
    // that are none: who waits on the device for a rank that is stopped goes on as if that had come.
    let condemned: Vec<_> = all.iter().filter(|inner| inner.condemn(cause.clone())).collect();
    for inner in &condemned {
        let inner = Arc::clone(inner);
        inner.clone().helper().run(move || tear_down(&inner));
    }
    !condemned.is_empty()
}

/// Aborts `inner`, which the caller has retired, on its own thread, and the other ranks of this process with it.
fn give_up(inner: &Arc<Inner>, cause: &Error) {
    abort_all(&inner.mates(cause), cause);
    tear_down(inner);
}

/// Aborts `inner` on its own thread; the gate is shut.
pub(crate) fn tear_down(inner: &Arc<Inner>) {
    let revoked = interrupt::clear(inner);
    #[cfg(nccl_ge_2_28_7)]
    save_windows(inner, revoked);
    #[cfg(not(nccl_ge_2_28_7))]
    let _ = revoked;
    // SAFETY: the handle is live, and nobody uses it any more: the gate is shut and empty, and only who has shut it comes
    // here. Revoking has returned. What NCCL keeps pointers into, the household of `inner` has.
    let _ = unsafe { sys::ncclCommAbort(inner.handle().raw()) };
    let_go(inner);
}

/// NCCL has let go of `inner`. Its streams go here, on a thread of their device.
fn let_go(inner: &Arc<Inner>) {
    // First: who has waited for the end, and allocates, finds what is about to be freed.
    inner.windows.end().into_iter().for_each(|burial| reaper::receive(burial, inner));
    inner.set_ended();
    if let Some(mut guard) = inner.lock_within(&Deadline::after(BUSY)) {
        guard.streams.clear();
    }
}

/// Before an abort of a library that forgets the windows of what it aborts, and with them their memory: stops the
/// communicator without freeing it, and takes them off. That costs the time of revoking, half a second to one.
#[cfg(nccl_ge_2_28_7)]
fn save_windows(inner: &Arc<Inner>, revoked: bool) {
    if inner.windows.is_empty() || !known_bugs::ABORT_KEEPS_WINDOWS.is_running() {
        return;
    }
    if !revoked {
        interrupt::revoke(inner);
    }
    // The device has left the communicator.
    take_off_windows(inner);
}

/// Wraps `ncclCommWindowDeregister` for all windows of `inner`, whose gate is shut and empty. No window comes after them, so the order
/// does not matter.
fn take_off_windows(inner: &Arc<Inner>) {
    #[cfg(nccl_ge_2_27)]
    for window in inner.windows.registered() {
        // SAFETY: a live communicator that nobody else uses: only who has shut the gate comes here. Its operations are done, or have been
        // stopped, and the window is one of its own that is deregistered once, as all are forgotten below.
        let _ = unsafe { sys::ncclCommWindowDeregister(inner.handle().raw(), window.0) };
    }
    inner.windows.clear().into_iter().for_each(|burial| reaper::receive(burial, inner));
}

/// Finalizes and destroys `members` after their operations have completed, all at the same time.
///
/// On an error, those that are still active stay so: abort them.
pub(crate) fn close(members: &[Arc<Inner>], deadline: &Deadline) -> Result<()> {
    if cuda::in_host_function() {
        return Err(in_host_function(CLOSE));
    }
    wait_for_work(members, deadline)?;
    // What they did is well, then, whatever becomes of the end.
    members.iter().try_for_each(|inner| inner.health())?;
    let mut closed = Ok(());
    let retired: Vec<_> = members
        .iter()
        .filter(|inner| {
            let first = inner.retire();
            if !first && closed.is_ok() {
                closed = Err(inner.dead(CLOSE));
            }
            first
        })
        .collect();
    for inner in &retired {
        closed = closed.and_then(|()| is_fit(inner, deadline));
    }
    let (sender, ends) = mpsc::channel();
    let unfit = closed.as_ref().err();
    for inner in &retired {
        let (inner, sender, unfit) = (Arc::clone(inner), sender.clone(), unfit.cloned());
        inner.clone().helper().run(move || {
            let _ = sender.send(match unfit {
                None => destroy(&inner),
                Some(cause) => {
                    give_up(&inner, &cause);
                    Ok(())
                }
            });
        });
    }
    drop(sender);
    for _ in 0..retired.len() {
        match ends.recv_timeout(deadline.remaining()) {
            Ok(ended) => closed = closed.and(ended),
            Err(_) => return closed.and(Err(deadline.error(CLOSE, "NCCL goes on ending the communicator by itself"))),
        }
    }
    // What other streams still do with memory that was dropped is no reason to fail.
    members.iter().for_each(|inner| {
        let _ = reaper::drain(inner.id, deadline);
    });
    closed
}

/// `inner` comes to nothing more, and what it had come to is done: whoever waits for it is told.
fn leave(inner: &Inner) {
    let Some(family) = &inner.family else { return };
    family.ledger.presence().close(inner.rank);
    for other in inner.relatives() {
        if let Some(error) = departure::of_closed(&other) {
            start_abort(&other.relatives(), &error);
        }
    }
}

/// Whether `inner`, which the caller has retired, can be destroyed: destroying a communicator that has an error leaves NCCL's
/// group depth raised.
fn is_fit(inner: &Inner, deadline: &Deadline) -> Result<()> {
    let mut round = 0;
    while !inner.is_left() {
        if deadline.expired() {
            return Err(busy_elsewhere(inner, CLOSE, deadline));
        }
        backoff(round);
        round += 1;
    }
    // SAFETY: the handle is live, and this thread alone may end the communicator.
    unsafe { health::async_error(inner.handle()) }
}

/// Finalizes and destroys `inner`, whose gate is shut and empty, and which has no error.
fn destroy(inner: &Arc<Inner>) -> Result<()> {
    let raw = inner.handle().raw();
    take_off_windows(inner);
    // SAFETY: the handle is live, and nobody else uses it any more: only who has shut the gate comes here.
    let finalized = check("ncclCommFinalize", unsafe { sys::ncclCommFinalize(raw) });
    if let Err(error) = finalized {
        give_up(inner, &error);
        return Err(error);
    }
    // SAFETY: as above; a finalized communicator is destroyed once.
    let destroyed = check("ncclCommDestroy", unsafe { sys::ncclCommDestroy(raw) });
    let_go(inner);
    destroyed
}

/// Waits until all that was enqueued is done.
fn wait_for_work(members: &[Arc<Inner>], deadline: &Deadline) -> Result<()> {
    let mut busy = Vec::new();
    for inner in members {
        if let Some(error) = inner.refusal(CLOSE) {
            return Err(error);
        }
        match inner.lock_within(deadline) {
            Some(guard) => busy.push((inner, guard.streams.all().to_vec(), false)),
            None => return Err(busy_elsewhere(inner, CLOSE, deadline)),
        }
    }
    let mut round = 0;
    loop {
        for (inner, streams, has_left) in &mut busy {
            while let Some(stream) = streams.last()
                && departure::settle(stream)?
            {
                streams.pop();
            }
            // One that waits for others itself may do so for ever, and others for it.
            let waits = || round >= SOME && departure::is_missed(inner);
            if !*has_left && (streams.is_empty() || waits()) {
                *has_left = true;
                leave(inner);
            }
        }
        busy.retain(|(_, streams, _)| !streams.is_empty());
        let Some((inner, streams, _)) = busy.first() else { return Ok(()) };
        if let Some(error) = busy.iter().find_map(|(inner, ..)| inner.refusal(CLOSE)) {
            return Err(error);
        }
        if deadline.expired() {
            let pending = streams.last().map(|stream| stream.history().origins().pending()).unwrap_or_default();
            return Err(deadline.error(CLOSE, format!("rank {} has work in flight{pending}", inner.rank)));
        }
        backoff(round);
        round += 1;
    }
}

/// What dropping communicators does: they are closed if that succeeds within [`GRACE`] for all, else they are aborted, and all
/// ranks of this process with them.
pub(crate) fn drop_all(members: &[Arc<Inner>]) {
    let active: Vec<_> = members.iter().filter(|inner| inner.is_active()).cloned().collect();
    if cuda::in_host_function() {
        // NCCL must not be called here, and still needs what it has pointers into.
        std::mem::forget(active);
        return;
    }
    let Some(timeout) = active.iter().map(|inner| inner.timeout()).min() else {
        return wait_for_what_is_left(members);
    };
    if std::thread::panicking() || close(&active, &Deadline::after(GRACE.min(timeout))).is_err() {
        let cause = Error::Aborted { operation: "drop", reason: "a rank was dropped with work in flight".into() };
        let relatives: Vec<_> = active.iter().flat_map(|inner| inner.relatives()).collect();
        if start_abort(&relatives, &cause) {
            wait_for_end(&relatives, &Deadline::after(GRACE));
        }
    }
}

/// Waits until none of `members`, which somebody has ended, writes into memory that may be freed next; not much longer than
/// [`GRACE`] after they were stopped.
fn wait_for_what_is_left(members: &[Arc<Inner>]) {
    let mut round = 0;
    while members.iter().any(|inner| inner.fate().is_fresh_failure() && !inner.has_left()) {
        backoff(round);
        round += 1;
    }
}

/// Refuses what enters NCCL within a host function of a stream.
pub(crate) fn outside_of_host_functions(operation: &'static str) -> Result<()> {
    if cuda::in_host_function() { Err(in_host_function(operation)) } else { Ok(()) }
}

#[cold]
fn in_host_function(operation: &'static str) -> Error {
    Error::InvalidUsage { operation, reason: "a host function of a stream must not call NCCL".into() }
}

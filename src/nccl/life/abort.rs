//! The end of a communicator that has failed, or is not wanted any more: once, on its own thread.
//!
//! An abort raises NCCL's flag on all members before anything else may wait for a device: kernels that spin look at it, and
//! what waits for them, a driver call of ours among others, waits until they see it. Hence no CUDA call here comes before
//! the flags, and no lock: the gate is shut, and who is not inside NCCL is not waited for.

use std::slice;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{freeing, interrupt, reaper, registration};
use crate::cuda;
use crate::deadline::{Deadline, backoff};
use crate::error::Error;
#[cfg(nccl_ge_2_28_7)]
use crate::known_bugs;
use crate::nccl::state::inner::Inner;
use crate::sys;

/// How long an end may take that nobody gave a deadline.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// How long an abort may take where it may wait for what waits for its caller. Alone it takes a second.
const HELD_UP: Duration = Duration::from_secs(3);

/// How long the lock is waited for, for what can be left undone.
const BUSY: Duration = Duration::from_secs(1);

/// What became of an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum AbortOutcome {
    /// The communicator is gone, and its operations have left the device.
    Done,
    /// It had been aborted or closed before, and is gone.
    Already,
    /// Ending goes on by itself, as NCCL waits for what other communicators do on the same devices, or is not possible because a thread
    /// stays inside NCCL, or because the communicator was closed while others go on that share its resources. Nothing of the communicator
    /// is freed then.
    StillRunning,
}

/// Ends `members` because of `cause`, but for those that somebody else has ended, and waits for the end of all.
pub(crate) fn abort(members: &[Arc<Inner>], cause: &Error, deadline: &Deadline) -> AbortOutcome {
    let told = everybody(members, cause);
    let all: Vec<_> = told.iter().map(|(inner, _)| Arc::clone(inner)).collect();
    // Before they end: afterwards nothing is known of their devices.
    let patience = if freeing::is_held_up(&all) { freeing::at_most(HELD_UP, deadline) } else { *deadline };
    let first = abort_all(&told);
    match wait_for_end(&all, &patience) {
        false => AbortOutcome::StillRunning,
        true if first => AbortOutcome::Done,
        true => AbortOutcome::Already,
    }
}

/// Whether NCCL has let go of all `members` before the deadline.
pub(crate) fn wait_for_end(members: &[Arc<Inner>], deadline: &Deadline) -> bool {
    let mut round = 0;
    let mut left: Vec<_> = members.iter().collect();
    loop {
        left.retain(|inner| !inner.has_ended());
        if left.is_empty() {
            return true;
        }
        // A host function keeps its stream waiting, and so perhaps the end. And nobody waits for those that share with what was closed,
        // nor for what is only to be freed, after others.
        if deadline.expired()
            || cuda::in_host_function()
            || left.iter().all(|inner| inner.rests() || inner.has_stopped())
        {
            return false;
        }
        backoff(round);
        round += 1;
    }
}

/// As [`abort`], without waiting; whether any of them was active.
pub(crate) fn start_abort(members: &[Arc<Inner>], cause: &Error) -> bool {
    abort_all(&everybody(members, cause))
}

/// Ends `inner` and its relatives: no call is possible on them when this returns. The rest is done on their own threads.
pub(crate) fn end(inner: &Inner, cause: &Error) {
    start_abort(&inner.relatives(), cause);
}

/// `members`, and the other ranks of this process that have to end with those that are active, each with why it does.
fn everybody(members: &[Arc<Inner>], cause: &Error) -> Vec<(Arc<Inner>, Error)> {
    let mut all: Vec<_> = members.iter().map(|inner| (Arc::clone(inner), cause.clone())).collect();
    for inner in members.iter().filter(|inner| inner.is_active()) {
        add_mates(inner, cause, &mut all);
    }
    all
}

/// Adds to `all` those that have to end with `inner`, which ends because of `cause`, and why each of them does.
fn add_mates(inner: &Inner, cause: &Error, all: &mut Vec<(Arc<Inner>, Error)>) {
    for mate in inner.mates(cause) {
        if all.iter().any(|(known, _)| known.id == mate.id) {
            continue;
        }
        let told = if mate.household.is_within(&inner.household) {
            cause.clone()
        } else {
            cause.clone().noted(format_args!("of {}, which shares its resources", inner.household.describe()))
        };
        all.push((mate, told));
    }
}

/// Aborts those of `all` that are active, each because of what stands beside it; whether there are any.
fn abort_all(all: &[(Arc<Inner>, Error)]) -> bool {
    // All are condemned before the first is aborted, so that every thread that notices gets this cause, and nobody finds results well
    // that are none: who waits on the device for a rank that is stopped goes on as if that had come.
    let condemned: Vec<_> = {
        // Of two who abort the same ranks, one finds them active.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|(inner, cause)| inner.condemn(cause.clone())).collect()
    };
    condemned.iter().for_each(|(inner, _)| doom(inner));
    for (inner, _) in &condemned {
        let inner = Arc::clone(inner);
        inner.clone().helper().run(move || tear_down(&inner));
    }
    !condemned.is_empty()
}

/// Aborts `inner`, which the caller has retired, on its own thread, and the other ranks of this process with it.
pub(crate) fn give_up(inner: &Arc<Inner>, cause: &Error) {
    doom(inner);
    let mut mates = Vec::new();
    add_mates(inner, cause, &mut mates);
    abort_all(&mates);
    tear_down(inner);
}

/// Has `inner`, whose gate is shut, be taken down by whoever takes down what shares its resources. All that end together are told so before
/// the first is aborted: that may wait for a device, and so for those of others, whose flags are not raised yet.
pub(super) fn doom(inner: &Arc<Inner>) {
    inner.household.sharers().into_iter().for_each(|sharers| sharers.doom(Arc::clone(inner)));
}

/// Aborts `inner` on its own thread, with those that share its resources and were not aborted yet; the gate is shut, and it was doomed.
pub(crate) fn tear_down(inner: &Arc<Inner>) {
    let Some(sharers) = inner.household.sharers() else {
        let revoked = interrupt::clear(slice::from_ref(inner));
        let revoked = save_registered(inner, revoked.contains(&inner.id));
        // Where others go on there, it is stopped first: to free it has to wait for them.
        if freeing::is_held_up(slice::from_ref(inner)) && (revoked || interrupt::revoke(inner)) {
            freeing::wait_for_devices(inner, || inner.set_stopped());
        }
        return abort_one(inner);
    };
    let _ending = sharers.ending();
    let mut condemned = sharers.condemned();
    if condemned.is_empty() {
        return;
    }
    // Nobody is inside any of them from here on: all were condemned or retired, or are about to be.
    let revoked = interrupt::clear(&inner.household.all());
    // First what the others were split off from: with the last rank of that, the flags of all are raised.
    condemned.sort_unstable_by_key(|inner| inner.id);
    for inner in &condemned {
        save_registered(inner, revoked.contains(&inner.id));
    }
    for inner in &condemned {
        // Streams go on a thread of their device.
        let _ = cuda::settle(inner.device);
        abort_one(inner);
    }
}

/// Wraps `ncclCommAbort`, for who has shut the gate of `inner` and found nobody inside it, nor inside of what shares its resources.
pub(crate) fn abort_one(inner: &Arc<Inner>) {
    // SAFETY: the handle is live, and nobody uses it any more: the gate is shut and empty, and only who has shut it comes
    // here. Revoking has returned. What NCCL keeps pointers into, the household of `inner` has. Nobody is inside a communicator that
    // shares its resources, and no other thread ends one: sharers are taken down by one thread at a time, when nobody is inside any.
    let _ = unsafe { sys::ncclCommAbort(inner.handle().raw()) };
    let_go(inner);
}

/// NCCL has let go of `inner`. Its streams go here, on a thread of their device.
pub(crate) fn let_go(inner: &Arc<Inner>) {
    // First: who has waited for the end, and allocates, finds what is about to be freed.
    inner.windows.end().into_iter().for_each(|burial| reaper::receive(burial, inner));
    inner.set_ended();
    if let Some(mut guard) = inner.lock_within(&Deadline::after(BUSY)) {
        guard.streams.clear();
    }
}

/// Before an abort of a library that forgets the windows of what it aborts, and with them their memory, or looks for what ranks have
/// registered where it has freed that: stops the communicator without freeing it, and takes all of it away. That costs the time of
/// revoking, half a second to one. (Revoking also ends the threads by which ranks ask each other to let go of what was registered: NCCL is
/// told that, and forgets it.) Whether `inner` was revoked, now or before.
#[cfg(nccl_ge_2_28_7)]
fn save_registered(inner: &Arc<Inner>, revoked: bool) -> bool {
    let (windows, memory) = inner.windows.any();
    let keeps_windows = windows && known_bugs::ABORT_KEEPS_WINDOWS.is_running();
    let leaves_memory = memory && known_bugs::REGISTRATIONS_LEFT.is_running();
    if !keeps_windows && !leaves_memory {
        return revoked;
    }
    if !revoked {
        interrupt::revoke(inner);
    }
    // The device has left the communicator.
    take_off_registered(inner);
    true
}

#[cfg(not(nccl_ge_2_28_7))]
fn save_registered(_inner: &Arc<Inner>, revoked: bool) -> bool {
    revoked
}

/// Wraps `ncclCommWindowDeregister` and `ncclCommDeregister` for all that NCCL has registered of `inner`, whose gate is shut and empty.
/// Nothing comes after that, so the order does not matter.
pub(crate) fn take_off_registered(inner: &Arc<Inner>) {
    for handle in inner.windows.registered() {
        // SAFETY: a live communicator that nobody else uses: only who has shut the gate comes here. Its operations are done, or have been
        // stopped, and the handle is one of its own that is given once, as all are forgotten below.
        unsafe { registration::take_away(inner.handle().raw(), handle) };
    }
    inner.windows.clear().into_iter().for_each(|burial| reaper::receive(burial, inner));
}

//! The end of a communicator that has failed, or is not wanted any more: once, on its own thread.
//!
//! An abort raises NCCL's flag on all members before anything else may wait for a device: kernels that spin look at it, and
//! what waits for them, a driver call of ours among others, waits until they see it. Hence no CUDA call here comes before
//! the flags, and no lock: the gate is shut, and who is not inside NCCL is not waited for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::freeing;
use super::together::{doom, take_down};
use crate::cuda;
use crate::deadline::{Deadline, backoff};
use crate::error::Error;
use crate::nccl::flight::ended;
use crate::nccl::flight::files::Trouble;
use crate::nccl::state::inner::Inner;

/// How long an end may take that nobody gave a deadline.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// How long an abort may take where it may wait for what waits for its caller. Alone it takes a second.
const HELD_UP: Duration = Duration::from_secs(3);

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
    let is_held_up = freeing::Others::of(&all).may_hold_up();
    let first = abort_all(&told);
    let patience = if is_held_up { freeing::at_most(HELD_UP, deadline) } else { *deadline };
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
            || left.iter().all(|inner| inner.rests() || (inner.has_stopped() && goes_on_later(inner)))
        {
            return false;
        }
        backoff(round);
        round += 1;
    }
}

/// Whether NCCL lets go of `inner`, which has stopped, at a time that nobody here knows: when others are done, or end.
fn goes_on_later(inner: &Inner) -> bool {
    // What was revoked has stopped before it ends.
    let others = || inner.household.members();
    !inner.was_revoked() || others().iter().any(|other| other.is_active() || other.is_revoked() || other.is_suspended())
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
    for inner in members.iter().filter(|inner| inner.is_active() || inner.is_suspended()) {
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

/// Of two who end or stop the same ranks, one finds them active.
pub(super) fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Aborts those of `all` that are active or were revoked, each because of what stands beside it; whether there are any.
fn abort_all(all: &[(Arc<Inner>, Error)]) -> bool {
    // All are condemned before the first is aborted, so that every thread that notices gets this cause, and nobody finds results well
    // that are none: who waits on the device for a rank that is stopped goes on as if that had come.
    let condemned: Vec<_> = {
        let _alone = one_at_a_time();
        all.iter().filter(|(inner, cause)| inner.condemn(cause.clone())).collect()
    };
    // Takes no time, and waits for nobody.
    condemned.iter().for_each(|(inner, cause)| ended::condemned(inner, cause));
    condemned.iter().for_each(|(inner, _)| doom(inner));
    condemned.iter().for_each(|(inner, cause)| inner.trace_abort(cause));
    let trouble = Trouble::of(condemned.iter().map(|(inner, cause)| (&**inner, cause)));
    for (inner, _) in &condemned {
        let inner = Arc::clone(inner);
        inner.clone().helper().run(move || take_down(&inner));
    }
    trouble.write();
    !condemned.is_empty()
}

/// Aborts `inner`, which the caller has retired, on its own thread, and the other ranks of this process with it.
pub(crate) fn give_up(inner: &Arc<Inner>, cause: &Error) {
    doom(inner);
    let mut mates = Vec::new();
    add_mates(inner, cause, &mut mates);
    abort_all(&mates);
    take_down(inner);
}

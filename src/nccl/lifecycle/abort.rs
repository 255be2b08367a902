//! Aborts communicators: ranks that have failed, or that nobody wants any more, and all that end
//! with them.
//!
//! An abort goes in four steps. Only the last one frees anything.
//!
//! 1. *Mark.* Every rank of this process that ends with the failed ones is marked aborted. From now
//!    on its calls, and waits for its work, return the cause. All ranks are marked before the first
//!    is stopped: when NCCL stops the kernel of one rank, the kernels of its peers complete without
//!    the data that it has not sent, and nobody may take that for a result.
//! 2. *Get ready.* Each rank waits on its own thread until no other thread is inside NCCL on it. A
//!    thread that blocks there is woken: see [`interrupt`].
//! 3. *Revoke*, if necessary: NCCL then stops the kernels of all ranks, and frees nothing yet.
//! 4. *Free.* When all ranks are ready, each is freed by `ncclCommAbort` on its own thread, or, if
//!    they share resources, all of them on one.
//!    [`Teardown`](crate::nccl::local_ranks::teardown::Teardown) decides that.
//!
//! NCCL's flag, which its kernels read while they wait, is raised before anything here may wait for
//! a device: a driver call may wait for these very kernels. So no CUDA call and no lock of a rank
//! comes before that.

use std::cmp::Reverse;
use std::ops::RangeInclusive;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::interrupt::Interruption;
use super::{graph_ends, interrupt, quiesce, release};
use crate::cuda;
use crate::deadline::{Deadline, backoff, wait_until};
use crate::error::Error;
use crate::lock::{Mutex, MutexGuard};
use crate::nccl::flight::ended;
use crate::nccl::flight::files::Trouble;
use crate::nccl::local_ranks::teardown::AfterAbort;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::state::AbortedBy;

/// How long an end may take without a deadline of the caller's.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// How long an abort may take if other work may hold it up that waits for the caller, from when no
/// thread blocks inside NCCL. Otherwise it takes a second.
const HELD_UP: Duration = Duration::from_secs(3);

/// The least and the most that an end takes after a missed deadline, of which it takes a fifth.
const AFTER_DEADLINE: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(2);

/// How long a rank that is left waits for the others before it is revoked: a thread inside one of
/// those may wait for it.
const SOON: Duration = Duration::from_millis(300);

/// What became of an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum AbortOutcome {
    /// The communicator is gone, and its operations have left the device.
    Done,
    /// It had been aborted or closed before, and is gone.
    Already,
    /// Ending goes on by itself, as NCCL waits for what other communicators do on the same devices,
    /// or is not possible. Nothing of the communicator is freed then. It is not possible
    /// - if a thread stays inside NCCL,
    /// - if the communicator was closed while others go on that share its resources,
    /// - if it had to be revoked while NCCL had memory registered for its graphs: NCCL would look for
    ///   that in memory that it has freed.
    StillRunning,
}

/// Aborts `members` because of `cause`, with all that end with them, and waits until NCCL has freed
/// them. Ranks that have ended before are waited for, too.
pub(crate) fn abort(members: &[Arc<Inner>], cause: &Error, deadline: &Deadline) -> AbortOutcome {
    abort_after(cause.waited(), members, cause, deadline)
}

/// Aborts as [`abort`] does. The caller has `waited` for work in vain before, and waits no longer
/// than a part of that again, here and when it drops `members`.
pub(crate) fn abort_after(
    waited: Duration,
    members: &[Arc<Inner>],
    cause: &Error,
    deadline: &Deadline,
) -> AbortOutcome {
    let all = with_all_that_end(members, cause);
    let ranks: Vec<_> = all.iter().map(|(inner, _)| Arc::clone(inner)).collect();
    // Before they end: afterwards their devices are not known.
    let is_held_up = quiesce::Others::of(&ranks).may_hold_up();
    let first = mark_and_free(&all, AbortedBy::Call);
    let patience = if is_held_up { quiesce::at_most(held_up(&ranks), deadline) } else { *deadline };
    let again = (!waited.is_zero()).then(|| after_deadline(waited));
    let patience = again.map_or(patience, |again| quiesce::at_most(again, &patience));
    match wait_for_end(&ranks, &patience) {
        false => {
            again.into_iter().for_each(|again| ranks.iter().for_each(|inner| inner.limit_end(again)));
            AbortOutcome::StillRunning
        }
        true if first => AbortOutcome::Done,
        true => AbortOutcome::Already,
    }
}

/// How long the end of ranks may take whose work was `waited` for in vain.
pub(super) fn after_deadline(waited: Duration) -> Duration {
    (waited / 5).clamp(*AFTER_DEADLINE.start(), *AFTER_DEADLINE.end())
}

/// How long an abort of `ranks`, which are marked, may take if other work may hold it up.
fn held_up(ranks: &[Arc<Inner>]) -> Duration {
    let is_left = ranks.iter().all(|inner| inner.is_left());
    let held_up = HELD_UP + graph_ends::patience(ranks);
    if is_left { held_up } else { interrupt::BLOCKED + held_up }
}

/// Aborts as [`abort`] does, without waiting. Returns whether any of the ranks was alive. When this
/// returns, no call on them is possible.
pub(crate) fn start_abort(members: &[Arc<Inner>], cause: &Error) -> bool {
    start_abort_by(AbortedBy::Call, members, cause)
}

/// Aborts as [`start_abort`] does, for somebody who knows less than a call.
pub(super) fn start_abort_by(by: AbortedBy, members: &[Arc<Inner>], cause: &Error) -> bool {
    mark_and_free(&with_all_that_end(members, cause), by)
}

/// Aborts `inner`, and the clique that it is in, without waiting.
pub(crate) fn abort_clique(inner: &Inner, cause: &Error) {
    start_abort(&inner.clique_ranks(), cause);
}

/// Aborts ranks that were revoked, and that `operation` ends: NCCL does not finalize those.
pub(crate) fn abort_revoked(revoked: &[Arc<Inner>], operation: &'static str) {
    if !revoked.is_empty() {
        let reason = "it was revoked, and closed or dropped then".into();
        let cause = Error::Aborted { operation, reason };
        // Ranks of other processes that have not revoked it may wait for these.
        revoked.iter().for_each(|inner| inner.validation.announce_end(inner.rank, &cause));
        start_abort(revoked, &cause);
    }
}

/// Aborts `inner`, which the caller has marked closed, on its own thread, and all that end with it.
pub(super) fn abort_closing(inner: &Arc<Inner>, cause: &Error) {
    add_to_teardown(inner);
    let mut others = Vec::new();
    add_all_that_end_with(inner, cause, &mut others);
    mark_and_free(&others, AbortedBy::Call);
    free_when_ready(inner);
}

/// Aborts the cliques of all of `members` because of `cause`. Returns one outcome for each; those
/// that do not exist any more count as ended.
pub(crate) fn abort_each(members: &[Option<Arc<Inner>>], cause: &Error, deadline: &Deadline) -> Vec<AbortOutcome> {
    let was_alive = |inner: &Option<Arc<Inner>>| inner.as_ref().is_some_and(|inner| inner.is_alive());
    let before: Vec<bool> = members.iter().map(was_alive).collect();
    let mut all: Vec<Arc<Inner>> = Vec::new();
    for rank in members.iter().flatten().flat_map(|inner| inner.clique_ranks()) {
        if !all.iter().any(|known| known.id == rank.id) {
            all.push(rank);
        }
    }
    let _ = abort(&all, cause, deadline);
    let outcomes = members.iter().zip(before).map(|(inner, was_alive)| match inner {
        Some(inner) if !inner.clique_ranks().iter().all(|one| one.has_ended()) => AbortOutcome::StillRunning,
        Some(_) if was_alive => AbortOutcome::Done,
        _ => AbortOutcome::Already,
    });
    outcomes.collect()
}

/// Waits until NCCL has freed all `members`. Returns false if it has not at the deadline, or if the
/// wait is pointless.
pub(crate) fn wait_for_end(members: &[Arc<Inner>], deadline: &Deadline) -> bool {
    let mut left: Vec<_> = members.iter().collect();
    deadline.wait(|| {
        left.retain(|inner| !inner.has_ended());
        // A host function keeps its stream waiting, and so perhaps the end. Ranks that wait for
        // other ranks may wait for ever.
        cuda::is_off_limits() || left.iter().all(|inner| inner.waits_for_sharers() || is_freed_later(inner))
    });
    left.is_empty()
}

/// Whether NCCL frees `inner`, which writes nowhere any more, at a time that nobody knows: when
/// other ranks have ended, or are idle.
fn is_freed_later(inner: &Arc<Inner>) -> bool {
    // A rank that was revoked has stopped before it ends.
    let others_live = || inner.local_ranks.ranks().iter().any(|other| other.is_alive());
    inner.has_stopped() && (!inner.was_revoked() || others_live() || graph_ends::must_stay(slice::from_ref(inner)))
}

/// A rank that has to end, and why.
type Ending = (Arc<Inner>, Error);

/// `members`, and the ranks of this process that have to end with those of them that are active or
/// suspended.
fn with_all_that_end(members: &[Arc<Inner>], cause: &Error) -> Vec<Ending> {
    let mut all: Vec<_> = members.iter().map(|inner| (Arc::clone(inner), cause.clone())).collect();
    for inner in members.iter().filter(|inner| inner.is_active() || inner.is_suspended()) {
        add_all_that_end_with(inner, cause, &mut all);
    }
    all
}

/// Adds to `all` the ranks that have to end with `inner`, which ends because of `cause`: of its
/// communicator, of its parts, and of those that share their resources. Ranks of these that are
/// being started learn the cause when they have started.
fn add_all_that_end_with(inner: &Inner, cause: &Error, all: &mut Vec<Ending>) {
    for rank in inner.local_ranks.mark_failed(cause) {
        if all.iter().any(|(known, _)| known.id == rank.id) {
            continue;
        }
        let cause = if rank.local_ranks.is_within(&inner.local_ranks) {
            cause.clone()
        } else {
            cause.clone().noted(format_args!("of communicator {}, which shares its resources", inner.name))
        };
        all.push((rank, cause));
    }
}

/// The lock under which ranks are marked: of two threads that end or revoke the same ranks, one
/// finds all of them active.
pub(super) fn lock_marking() -> MutexGuard<'static, ()> {
    static MARKING: Mutex<()> = Mutex::new(());
    MARKING.lock()
}

/// Marks all of these ranks aborted, and has each that was alive free itself on its own thread.
/// Returns whether there were any.
fn mark_and_free(all: &[Ending], by: AbortedBy) -> bool {
    let marked: Vec<_> = {
        let _alone = lock_marking();
        all.iter().filter(|(inner, cause)| inner.mark_aborted(cause.clone(), by)).collect()
    };
    // Takes no time, and waits for nobody.
    marked.iter().for_each(|(inner, cause)| ended::record_abort(inner, cause));
    marked.iter().for_each(|(inner, _)| add_to_teardown(inner));
    marked.iter().for_each(|(inner, cause)| inner.trace_abort(cause));
    let trouble = Trouble::of(marked.iter().map(|(inner, cause)| (&**inner, cause)));
    marked.iter().for_each(|(inner, _)| start_freeing(inner));
    trouble.write();
    !marked.is_empty()
}

/// Adds `inner`, whose gate is shut, to those that are freed together. All ranks are added before
/// the first gets ready: to revoke one may wait for a device, and so for ranks that are not stopped
/// yet.
pub(super) fn add_to_teardown(inner: &Arc<Inner>) {
    inner.local_ranks.teardown().abort(Arc::clone(inner));
}

fn start_freeing(inner: &Arc<Inner>) {
    let own = Arc::clone(inner);
    inner.helper().run(move || free_when_ready(&own));
}

/// Frees `inner`, which was added to the teardown, when all ranks are ready that end with it. Runs
/// on the rank's own thread.
pub(super) fn free_when_ready(inner: &Arc<Inner>) {
    let teardown = inner.local_ranks.teardown();
    teardown.abort_waiting().iter().for_each(start_freeing);
    let (revoked, next) = get_ready(inner);
    match next {
        AfterAbort::FreeAll(mut ranks) => {
            let _freeing = teardown.lock_freeing();
            // The first communicator comes last: with its last rank NCCL frees all of them before
            // it waits for one.
            ranks.sort_unstable_by_key(|inner| Reverse(inner.id));
            free(&ranks, revoked);
        }
        AfterAbort::Free => free(slice::from_ref(inner), revoked),
        AfterAbort::Leave | AfterAbort::Wait => {}
    }
}

/// Waits until no thread is inside NCCL on any rank that ends with `inner`, and all were revoked if
/// one has to be. Returns whether `inner` was revoked, and what comes next.
fn get_ready(inner: &Arc<Inner>) -> (bool, AfterAbort<Inner>) {
    let teardown = inner.local_ranks.teardown();
    let (interruption, soon) = (Interruption::of(inner), Deadline::after(SOON));
    let require_revoke = || {
        if interrupt::IS_POSSIBLE {
            teardown.require_revoke(inner)
        }
    };
    // A rank that was revoked before has stopped, and cannot be revoked again.
    let (mut is_left, mut revoked, mut registers) = (false, inner.has_stopped(), false);
    let mut have_graphs_ended = false;
    if revoked {
        teardown.set_revoked(inner);
    }
    let mut round = 0;
    loop {
        let others = (!is_left && inner.is_left()).then(|| quiesce::Others::of(slice::from_ref(inner)));
        // Another rank may be locked for a moment, also by a thread that ends it. Nothing is freed
        // before it is known which work holds that up.
        if let Some(others) = others.filter(|others| others.are_known() || soon.expired()) {
            registers = release::follows_registrations(inner);
            // NCCL frees the last sharer of each rank when those of the other ranks are freed. One
            // thread cannot do that one after the other.
            let all = teardown.is_shared() || release::loses_windows(inner);
            if registers || all || others.may_hold_up() {
                require_revoke();
            }
            teardown.set_left(inner);
            is_left = true;
        }
        let blocks = interruption.is_due();
        if blocks {
            require_revoke();
        }
        // To revoke this rank also wakes calls inside the communicators that share its resources.
        let sharers_are_left = || soon.expired() || teardown.are_left(|other| other.order == inner.order);
        let is_due = blocks || (is_left && (registers || teardown.must_revoke(inner)) && sharers_are_left());
        // Another rank may launch a kernel later that writes to this one.
        let in_driver = || inner.local_ranks.ranks().iter().any(|rank| interrupt::waits_in_driver(rank));
        if interrupt::IS_POSSIBLE && is_due && !revoked && !have_graphs_ended {
            // This may take a while: whether the rest holds is asked again.
            graph_ends::before_revoke(inner);
            have_graphs_ended = true;
            continue;
        }
        if interrupt::IS_POSSIBLE && is_due && !revoked && !in_driver() {
            let _turn = inner.shared_lock().map(|lock| lock.turn());
            // A revoke does not wait for launches that NCCL does not know, and frees memory of
            // other ranks that they use. The flags of the abort stop those.
            if blocks || inner.local_ranks.ranks().iter().all(|rank| have_left(rank)) {
                // If it fails, the abort raises the flags again.
                let _ = interrupt::revoke(inner);
            }
            revoked = true;
            teardown.set_revoked(inner);
        }
        match teardown.next(inner) {
            // NCCL cannot be interrupted, so nothing is gained by waiting.
            AfterAbort::Wait if is_left && !interrupt::IS_POSSIBLE && !teardown.is_shared() => {
                return (false, AfterAbort::Free);
            }
            AfterAbort::Wait if is_left && soon.expired() => require_revoke(),
            AfterAbort::Wait => {}
            next => return (revoked, next),
        }
        backoff(round);
        round += 1;
    }
}

/// Whether no launch of a graph of `inner` is on its device that NCCL does not know. Only the flags
/// of an abort stop those.
fn have_left(inner: &Inner) -> bool {
    inner.graphs.have_left().unwrap_or(true)
}

/// Frees `ranks`, which are ready, and were revoked or not.
fn free(ranks: &[Arc<Inner>], revoked: bool) {
    if revoked {
        ranks.iter().for_each(|inner| graph_ends::end(inner));
    }
    let was_revoked = ranks.iter().any(|inner| inner.was_revoked_in_nccl());
    if was_revoked {
        // NCCL has taken its flag back, and an abort would not wait for these launches.
        wait_until(|| ranks.iter().all(|inner| have_left(inner)));
    }
    let stopped = revoked && ranks.iter().all(|inner| have_left(inner));
    if stopped && was_revoked && graph_ends::must_stay(ranks) {
        ranks.iter().for_each(|inner| inner.set_stopped());
        // NCCL goes on to use what they own.
        ranks.iter().for_each(|inner| std::mem::forget(Arc::clone(inner)));
        return;
    }
    if revoked && !stopped {
        // Registrations are removed all the same: NCCL would look for them in memory that it has
        // freed.
        ranks.iter().filter(|inner| release::follows_registrations(inner)).for_each(release::remove_registered);
    }
    if stopped {
        // The devices have left all of them.
        let registered = |inner: &&Arc<Inner>| release::loses_windows(inner) || release::follows_registrations(inner);
        ranks.iter().filter(registered).for_each(release::remove_registered);
        // To free them waits for other communicators that go on there.
        quiesce::wait_for_devices(ranks, || ranks.iter().for_each(|inner| inner.set_stopped()));
        graph_ends::wait_until_told(ranks);
    }
    let free_all = || {
        for inner in ranks {
            // Streams are dropped on a thread whose device is theirs.
            let _ = cuda::settle(inner.device);
            release::abort_one(inner);
        }
    };
    if stopped { quiesce::undisturbed(ranks, free_all) } else { free_all() }
}

#[cfg(all(test, gpucomm_emulator))]
#[path = "abort_tests.rs"]
mod tests;

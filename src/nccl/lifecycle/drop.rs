//! Drops communicators: closes them if their work ends soon, else aborts them.
//!
//! A drop waits for a bounded time, and several drops of one thread share it. What somebody has
//! waited for [in vain](timeouts), a drop does not wait for again.

use std::sync::Arc;
use std::time::Duration;

use super::abort::{GRACE, abort_revoked, after_deadline, start_abort_by, wait_for_end};
use super::close::close;
use super::timeouts;
use crate::cuda::{self, Stream, Worker};
use crate::deadline::{Deadline, wait_until};
use crate::error::Error;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::state::AbortedBy;

/// How long a drop waits for work that was waited for in vain.
const AGAIN: Duration = Duration::from_millis(100);

/// The part of its time that a drop keeps for the end of what it aborts.
const ENDING: Duration = Duration::from_secs(2);

/// The least time that NCCL has to stop what was aborted. Until then it may write into memory that
/// the caller frees next.
const STOPPING: Duration = Duration::from_millis(500);

const DROP: &str = "drop";

/// The time of the drop of something that owns communicators, and waits for more than they do.
pub(crate) struct DropTime {
    wait: timeouts::Wait,
    whole: Deadline,
}

impl DropTime {
    /// A drop that begins now, of something with this timeout.
    pub(crate) fn begin(timeout: Duration) -> Self {
        let wait = timeouts::Wait::begin();
        let whole = Deadline::after(time_for(timeout, &wait));
        Self { wait, whole }
    }

    /// The part of the time in which the work may end by itself.
    pub(crate) fn for_work(&self) -> Deadline {
        let left = self.whole.remaining();
        Deadline::after(left.saturating_sub(ENDING.min(left / 5)))
    }

    pub(crate) fn whole(&self) -> Deadline {
        self.whole
    }

    /// The work has not ended: the next drops of this thread have less time.
    pub(crate) fn record_timeout(self) {
        self.wait.record_timeout();
    }

    /// The work has ended. What the thread has spent in vain before still counts.
    pub(crate) fn went_on(self) {
        self.wait.went_on();
    }
}

/// How long a drop takes at most, of something with this timeout.
fn time_for(timeout: Duration, wait: &timeouts::Wait) -> Duration {
    GRACE.min(timeout).saturating_sub(wait.spent).max(AGAIN)
}

/// Drops communicators: closes them, or, if that fails or takes too long, aborts them and all ranks
/// of this process with them. Takes at most the smaller of [`GRACE`] and their timeout, for all
/// that the thread drops one after the other.
pub(crate) fn drop_all(members: &[Arc<Inner>]) {
    let alive = members.iter().filter(|inner| inner.is_alive()).cloned();
    let (revoked, active): (Vec<_>, Vec<_>) = alive.partition(|inner| inner.is_revoked());
    if cuda::is_off_limits() {
        // NCCL must not be called here, and still has pointers into what they own.
        std::mem::forget((active, revoked));
        return;
    }
    abort_revoked(&revoked, "drop");
    let Some(timeout) = active.iter().map(|inner| inner.time_to_end()).min() else {
        return wait_until_left(members);
    };
    let wait = timeouts::Wait::begin();
    let whole = time_for(timeout, &wait);
    let for_end = ENDING.min(whole / 5);
    let for_work = whole - for_end;
    let waits = if std::thread::panicking() { Vec::new() } else { timeouts::busy(&active) };
    // The time for which the work was waited for before counts, too: where one stream does not move,
    // the ranks cannot be closed, whatever the others do.
    let waited = waits.iter().map(Stream::last_timeout).max().unwrap_or_default();
    let deadline = Deadline::after(for_work.saturating_sub(waited).max(AGAIN));
    if !std::thread::panicking() && close(&active, &deadline).is_ok() {
        // NCCL may wait for ranks of other processes, and goes on with that by itself.
        if active.iter().all(|inner| inner.has_ended()) { wait.went_on() } else { wait.record_timeout() }
    } else {
        // Other threads may have revoked some of them meanwhile: those end alone.
        let (revoked, active): (Vec<_>, Vec<_>) = active.into_iter().partition(|inner| inner.is_revoked());
        abort_revoked(&revoked, DROP);
        let is_late = deadline.expired();
        let streams = if is_late { timeouts::busy(&active) } else { Vec::new() };
        // A wait that has failed has said what hangs, if it was no shorter than this one.
        let given_up = streams.iter().filter_map(Stream::given_up).find(|error| error.waited() >= for_work);
        let (by, reason) = why_dropped(&active);
        let by = if given_up.is_some() { AbortedBy::Call } else { by };
        let cause = given_up.unwrap_or(Error::Aborted { operation: DROP, reason: reason.into() });
        streams.iter().for_each(|stream| stream.give_up_all_after(for_work, None));
        let end = if is_late { Deadline::after(for_end) } else { Deadline::since(wait.start, whole) };
        let cliques = Inner::cliques_of(&active);
        if start_abort_by(by, &cliques, &cause) {
            // NCCL frees nothing before the devices have done all their work, including that of
            // others.
            if !wait_for_end(&cliques, &end) {
                cliques.iter().for_each(|inner| inner.limit_end(for_end));
            }
        }
        if !streams.is_empty() || end.expired() { wait.record_timeout() } else { wait.went_on() }
    }
}

/// Why `members` were not closed when they were dropped, and who knows.
fn why_dropped(members: &[Arc<Inner>]) -> (AbortedBy, String) {
    let dropped = match members {
        [one] => format!("rank {} was dropped", one.rank),
        _ => "its ranks were dropped".to_owned(),
    };
    match (members, std::thread::panicking()) {
        ([one, ..], false) if one.is_suspended() => {
            (AbortedBy::Call, format!("rank {} was dropped while it was suspended", one.rank))
        }
        (_, true) => (AbortedBy::Call, dropped + " by a thread that panics"),
        (_, false) => (AbortedBy::Drop, dropped + " with work in flight"),
    }
}

/// Waits until none of `members`, which have ended before, writes into memory that the caller may
/// free next. NCCL has had time to stop them since they failed, so all drops together wait as long
/// as one.
fn wait_until_left(members: &[Arc<Inner>]) {
    let wait = timeouts::Wait::begin();
    let allowed = |inner: &Arc<Inner>| {
        // Where it has failed at a deadline, that was waited for.
        let waited = inner.cause().map_or(Duration::ZERO, Error::waited);
        let timeout = if waited.is_zero() { Duration::MAX } else { after_deadline(waited) };
        timeout.min(inner.time_to_end()).min(GRACE).saturating_sub(wait.spent).max(STOPPING)
    };
    let is_late = |inner: &Arc<Inner>| {
        let failed = inner.fate().failed_at();
        failed.is_none_or(|failed| Deadline::since(failed, allowed(inner)).expired())
    };
    wait_until(|| members.iter().all(|inner| is_late(inner) || inner.has_left()));
    let mut failed = members.iter().filter(|inner| inner.fate().failed_at().is_some()).peekable();
    if failed.peek().is_none() {
        return;
    }
    if failed.all(|inner| inner.has_left()) { wait.went_on() } else { wait.record_timeout() }
}

#[cfg(all(test, gpucomm_emulator))]
#[path = "drop_tests.rs"]
mod tests;

//! Drops communicators: closes them if their work ends soon, else aborts them.
//!
//! A drop waits for a bounded time, and several drops of one thread share it: what one has waited
//! for in vain, the next does not wait for again.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::abort::{GRACE, abort_revoked, start_abort, wait_for_end};
use super::close::close;
use crate::cuda::{self, Stream, Worker};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::nccl::rank::inner::Inner;

/// How long a drop waits for work that this thread has waited for in vain, or that a wait for its
/// stream has.
const AGAIN: Duration = Duration::from_millis(100);

/// Drops of one thread within this time count as one, as at the end of a scope.
const AT_ONCE: Duration = Duration::from_millis(100);

/// For so long, a drop does not wait for what the drop before it has waited for in vain.
const SOON: Duration = Duration::from_secs(1);

/// The part of its time that a drop keeps for the end of what it aborts.
const ENDING: Duration = Duration::from_secs(2);

/// The drops of one thread that came one after the other and have waited in vain.
#[derive(Clone, Default)]
struct InVain {
    /// The end of the last one.
    last: Option<Instant>,
    /// How long they took in all.
    spent: Duration,
    /// The streams that were not done, by their serial numbers.
    streams: Vec<u64>,
}

thread_local! {
    static IN_VAIN: RefCell<InVain> = RefCell::default();
}

impl InVain {
    /// The drops of this thread, if the last one was a moment ago. Empty on a thread whose
    /// thread-locals are gone.
    fn recent() -> Self {
        let mut known = IN_VAIN.try_with(|all| all.borrow().clone()).unwrap_or_default();
        let age = known.last.map_or(Duration::MAX, |last| last.elapsed());
        if age >= AT_ONCE {
            known.spent = Duration::ZERO;
        }
        if age < SOON { known } else { Self::default() }
    }

    /// Adds a drop that has begun at `start` and waited for `streams`.
    fn add(mut self, start: Instant, streams: Vec<u64>) {
        self.last = Some(Instant::now());
        self.spent += start.elapsed();
        self.streams.extend(streams);
        let _ = IN_VAIN.try_with(|all| all.replace(self));
    }
}

/// The time of the drop of something that owns communicators, and waits for more than they do.
#[cfg(feature = "world")]
pub(crate) struct DropTime {
    start: Instant,
    in_vain: InVain,
    whole: Deadline,
}

#[cfg(feature = "world")]
impl DropTime {
    /// A drop that begins now, of something with this timeout.
    pub(crate) fn begin(timeout: Duration) -> Self {
        let in_vain = InVain::recent();
        let whole = Deadline::after(GRACE.min(timeout).saturating_sub(in_vain.spent).max(AGAIN));
        Self { start: Instant::now(), in_vain, whole }
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
    pub(crate) fn was_in_vain(self) {
        self.in_vain.add(self.start, Vec::new());
    }
}

/// The streams of `members` that are not done.
fn busy(members: &[Arc<Inner>]) -> Vec<Stream> {
    let streams = members.iter().filter_map(|inner| Some(inner.try_lock()?.streams.all().to_vec())).flatten();
    streams.filter(|stream| !stream.is_drained().unwrap_or(true)).collect()
}

/// Drops communicators: closes them, or, if that fails or takes too long, aborts them and all ranks
/// of this process with them. Takes at most the smaller of [`GRACE`] and their timeout, for all
/// that the thread drops one after the other.
pub(crate) fn drop_all(members: &[Arc<Inner>]) {
    let alive = members.iter().filter(|inner| inner.is_alive()).cloned();
    let (revoked, active): (Vec<_>, Vec<_>) = alive.partition(|inner| inner.is_revoked());
    if cuda::in_host_function() {
        // NCCL must not be called here, and still has pointers into what they own.
        std::mem::forget((active, revoked));
        return;
    }
    abort_revoked(&revoked, "drop");
    let Some(timeout) = active.iter().map(|inner| inner.timeout()).min() else {
        return wait_until_left(members);
    };
    let (start, in_vain) = (Instant::now(), InVain::recent());
    let whole = Deadline::after(GRACE.min(timeout).saturating_sub(in_vain.spent).max(AGAIN));
    let waits = if std::thread::panicking() { Vec::new() } else { busy(&active) };
    let for_work = whole.remaining().saturating_sub(ENDING.min(whole.remaining() / 5));
    let waited = |stream: &Stream| match stream.given_up() {
        _ if in_vain.streams.contains(&stream.serial()) => for_work,
        Some(Error::Timeout { timeout, .. }) => timeout,
        _ => Duration::ZERO,
    };
    // The time for which the work was waited for before counts, too.
    let left = for_work.saturating_sub(waits.iter().map(waited).min().unwrap_or_default()).max(AGAIN);
    let deadline = Deadline::after(left);
    if std::thread::panicking() || close(&active, &deadline).is_err() {
        // Other threads may have revoked some of them meanwhile: those end alone.
        let (revoked, active): (Vec<_>, Vec<_>) = active.into_iter().partition(|inner| inner.is_revoked());
        abort_revoked(&revoked, "drop");
        let streams = if deadline.expired() { busy(&active) } else { Vec::new() };
        // A wait that has failed has said what hangs, if it was no shorter than this one.
        let is_long = |error: &Error| matches!(error, Error::Timeout { timeout: waited, .. } if *waited >= for_work);
        let reason = || Error::Aborted { operation: "drop", reason: why_dropped(&active) };
        let given_up = streams.iter().filter_map(Stream::given_up).find(is_long);
        let cause = given_up.unwrap_or_else(reason);
        let cliques: Vec<_> = active.iter().flat_map(|inner| inner.clique_ranks()).collect();
        if start_abort(&cliques, &cause) {
            // NCCL frees nothing before the devices have done all their work, including that of
            // others.
            wait_for_end(&cliques, &whole);
        }
        if !streams.is_empty() || whole.expired() {
            in_vain.add(start, streams.iter().map(Stream::serial).collect());
        }
    }
}

/// Why `members` were not closed when they were dropped.
fn why_dropped(members: &[Arc<Inner>]) -> String {
    match (members, std::thread::panicking()) {
        ([one, ..], false) if one.is_suspended() => format!("rank {} was dropped while it was suspended", one.rank),
        ([one], true) => format!("rank {} was dropped by a thread that panics", one.rank),
        ([one], false) => format!("rank {} was dropped with work in flight", one.rank),
        (_, true) => "its ranks were dropped by a thread that panics".into(),
        (_, false) => "its ranks were dropped with work in flight".into(),
    }
}

/// Waits until none of `members`, which have ended before, writes into memory that the caller may
/// free next. Takes no longer than a drop that ends them itself.
fn wait_until_left(members: &[Arc<Inner>]) {
    let (start, in_vain) = (Instant::now(), InVain::recent());
    let timeout = members.iter().map(|inner| inner.timeout()).min().unwrap_or(GRACE);
    // Even if operations may take less: better wait than free memory that is written to.
    let whole = Deadline::after(timeout.clamp(ENDING, GRACE).saturating_sub(in_vain.spent));
    if !whole.wait(|| members.iter().all(|inner| !inner.fate().is_fresh_failure() || inner.has_left())) {
        in_vain.add(start, Vec::new());
    }
}

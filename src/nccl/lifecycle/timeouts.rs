//! Remembers the waits that were in vain, so that no thread pays a deadline twice.
//!
//! A thread that has given up a wait for work does not wait for that work again. This holds for a
//! drop after a failed close, and for the drop of another communicator on the same streams. A
//! stream remembers for how long it was waited for, until it moves. Besides, drops that come one
//! right after the other, as at the end of a scope, have one budget for all.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cuda::Stream;
use crate::error::{Error, Result};
use crate::nccl::rank::inner::Inner;

/// Ends of one thread within this time count as one, as at the end of a scope.
const AT_ONCE: Duration = Duration::from_millis(100);

/// How long ends that are not in vain keep what was spent before them.
const KEPT: Duration = Duration::from_secs(1);

/// The time that a thread has spent in failed waits.
#[derive(Debug, Clone, Copy)]
struct Spent {
    /// The end of its last wait that was in vain.
    timeout: Instant,
    /// The end of its last wait.
    last: Instant,
    /// How long those in vain took, one right after the other.
    time: Duration,
}

thread_local! {
    static SPENT: Cell<Option<Spent>> = const { Cell::new(None) };
}

/// What this thread has spent. `None` if its thread-locals are destroyed.
fn last() -> Option<Spent> {
    SPENT.try_with(Cell::get).ok().flatten()
}

/// How long this thread has waited in vain until a moment ago.
pub(super) fn spent() -> Duration {
    let counts = |spent: &Spent| spent.last.elapsed() < AT_ONCE && spent.timeout.elapsed() < KEPT;
    last().filter(counts).map_or(Duration::ZERO, |spent| spent.time)
}

/// A wait of this thread, from its begin on.
pub(super) struct Wait {
    pub(super) start: Instant,
    /// What was [`spent`] before it.
    pub(super) spent: Duration,
}

impl Wait {
    pub(super) fn begin() -> Self {
        Self { start: Instant::now(), spent: spent() }
    }

    /// The next waits of this thread have less time.
    pub(super) fn record_timeout(self) {
        let (now, time) = (Instant::now(), self.spent + self.start.elapsed());
        let _ = SPENT.try_with(|spent| spent.set(Some(Spent { timeout: now, last: now, time })));
    }

    /// It was not in vain. The next waits of this thread come right after it: what the thread has spent before still
    /// counts.
    pub(super) fn went_on(self) {
        // Of a wait within this one, too.
        let known = last().filter(|spent| !self.spent.is_zero() || spent.last >= self.start);
        if let Some(spent) = known {
            let _ = SPENT.try_with(|last| last.set(Some(Spent { last: Instant::now(), ..spent })));
        }
    }
}

/// The streams of `members` that are not done.
pub(super) fn busy(members: &[Arc<Inner>]) -> Vec<Stream> {
    let streams = members.iter().filter_map(|inner| Some(inner.try_lock()?.streams.all().to_vec())).flatten();
    streams.filter(|stream| !stream.is_drained().unwrap_or(true)).collect()
}

/// The length of the longest late wait for work of `inner` that may go on. Does not call CUDA: kernels
/// of `inner` still run, and may hold up such a call.
pub(crate) fn may_have_waited(inner: &Inner) -> Duration {
    let Some(guard) = inner.try_lock() else { return Duration::ZERO };
    guard.streams.all().iter().map(Stream::may_be_given_up_after).max().unwrap_or_default()
}

/// A wait for `streams` has ended with `late`, a [`Error::Timeout`].
fn give_up(streams: &[Stream], late: &Error) {
    streams.iter().for_each(|stream| stream.give_up_all(late));
}

/// A wait for uses of memory of `inner` has ended with `error`. If that was too late, a drop does
/// not wait as long again.
#[cold]
pub(crate) fn note_wait(inner: &Arc<Inner>, error: &Error) {
    if matches!(error, Error::Timeout { .. }) {
        give_up(&busy(std::slice::from_ref(inner)), error);
    }
}

/// A close of `members` has ended like this, at its deadline or before. If it is late, a drop waits
/// no longer for them than that close has.
pub(super) fn note_close(members: &[Arc<Inner>], closed: &Result<()>) {
    if let Err(late @ Error::Timeout { timeout, .. }) = closed {
        give_up(&busy(members), late);
        members.iter().for_each(|inner| inner.limit_end(*timeout));
    }
}

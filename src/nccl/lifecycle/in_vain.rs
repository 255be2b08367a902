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

thread_local! {
    /// The end of the last wait of this thread that was in vain, and how long it took, with those
    /// right before it.
    static SPENT: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

/// How long this thread has waited in vain until a moment ago. Zero on a thread whose thread-locals
/// are gone.
pub(super) fn spent() -> Duration {
    let last = SPENT.try_with(Cell::get).ok().flatten();
    last.filter(|(end, _)| end.elapsed() < AT_ONCE).map_or(Duration::ZERO, |(_, spent)| spent)
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
    pub(super) fn was_in_vain(self) {
        let spent = self.spent + self.start.elapsed();
        note(spent);
    }

    /// It was for what an earlier wait has ended, and took no time of its own: the next waits of this
    /// thread come right after that one.
    pub(super) fn went_on(self) {
        if !self.spent.is_zero() {
            note(self.spent);
        }
    }
}

fn note(spent: Duration) {
    let _ = SPENT.try_with(|last| last.set(Some((Instant::now(), spent))));
}

/// The streams of `members` that are not done.
pub(super) fn busy(members: &[Arc<Inner>]) -> Vec<Stream> {
    let streams = members.iter().filter_map(|inner| Some(inner.try_lock()?.streams.all().to_vec())).flatten();
    streams.filter(|stream| !stream.is_drained().unwrap_or(true)).collect()
}

/// How long somebody has waited for `stream` in vain, which has not moved since.
pub(super) fn waited_for(stream: &Stream) -> Duration {
    stream.given_up().map_or(Duration::ZERO, |error| error.waited())
}

/// The length of the longest late wait for work of `inner` that may go on. Does not call CUDA: kernels
/// of `inner` still run, and may hold up such a call.
pub(crate) fn may_have_waited(inner: &Inner) -> Duration {
    let Some(guard) = inner.try_lock() else { return Duration::ZERO };
    guard.streams.all().iter().map(Stream::may_be_given_up_after).max().unwrap_or_default()
}

/// A wait for `streams` has ended with `late`, a [`Error::Timeout`].
pub(super) fn give_up(streams: &[Stream], late: &Error) {
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
        members.iter().for_each(|inner| inner.limit_timeout(*timeout));
    }
}

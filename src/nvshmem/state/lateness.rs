//! Whether this PE has come to a meeting so late that another one may have given up on it.
//!
//! The other PEs enter a meeting only after this PE has come to the meeting before it. A PE that waits gives up when its time is
//! over, which is at [`least`] a part of its timeout, or soon after it has learned that another PE has ended. If less time has
//! passed since the last meeting, no PE has given up, and this one need not ask.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::lock::Mutex;

/// When this PE came to its last meeting with the same PEs, if it has.
#[derive(Default)]
pub(crate) struct Last(Mutex<Option<Instant>>);

impl Last {
    pub(crate) fn get(&self) -> Option<Instant> {
        *self.0.lock()
    }

    /// It came to one at `since`.
    pub(crate) fn set(&self, since: Instant) {
        *self.0.lock() = Some(since);
    }
}

/// How long a PE with this timeout waits in a meeting before it gives up, at least. If its call has waited before, it has no more than that.
pub(super) fn least(timeout: Duration) -> Duration {
    timeout / 4
}

/// The shortest timeout of the PEs that are known, in milliseconds.
pub(crate) struct Shortest(AtomicU64);

impl Shortest {
    pub(crate) fn new(own: Duration) -> Self {
        Self(AtomicU64::new(milliseconds(own)))
    }

    /// Other PEs have these, in milliseconds.
    pub(crate) fn hear(&self, timeouts: impl Iterator<Item = u64>) {
        self.0.fetch_min(timeouts.min().unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// So long a PE may wait in a meeting, at most, before it gives up.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    /// Whether a PE may have given up that has waited since `since`, or for who knows how long. It does so no sooner than `soonest`, or after its
    /// [`least`] time. An eighth of either is left for threads that run late.
    pub(crate) fn may_be_over(&self, since: Option<Instant>, soonest: Duration) -> bool {
        let soonest = least(self.time()).min(soonest);
        since.is_none_or(|since| since.elapsed() >= soonest - soonest / 8)
    }
}

/// A timeout as PEs tell it each other.
pub(crate) fn milliseconds(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_timeout_counts() {
        let shortest = Shortest::new(Duration::from_secs(3600));
        let since = |ms| Instant::now().checked_sub(Duration::from_millis(ms));
        let soonest = Duration::from_secs(60);
        assert!(!shortest.may_be_over(since(2000), soonest));
        assert!(shortest.may_be_over(since(2000), Duration::from_millis(600)));
        shortest.hear([600_000, 8000].into_iter());
        assert!(shortest.may_be_over(since(2000), soonest) && shortest.may_be_over(since(1800), soonest));
        assert!(!shortest.may_be_over(Some(Instant::now()), soonest) && shortest.may_be_over(None, soonest));
    }
}

//! How much a world has done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::guarded::dropped;
use crate::callbacks;
use crate::hint::Apart;

/// Counters of a world, since it was made, over all of its ranks here and all generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Requests that were submitted, those that were refused at once included.
    pub submitted: u64,
    /// Those that the communicator has taken.
    pub enqueued: u64,
    /// Those that are done, with a result.
    pub done: u64,
    /// Those that have failed, were refused or came too late.
    pub failed: u64,
    /// Those that were cancelled.
    pub cancelled: u64,
    /// Those that wait in queues or are on devices now.
    pub pending: u64,
    /// Generations that have failed.
    pub lost: u64,
    /// How often the world was rebuilt.
    pub rebuilt: u64,
}

/// A counter that goes up with each request: the threads of one rank count apart from those of others.
#[derive(Debug, Default)]
pub(super) struct OfRanks([Apart<AtomicU64>; 8]);

impl OfRanks {
    /// One more.
    pub(super) fn count(&self, rank: usize) {
        count(&self.0[rank % self.0.len()].0);
    }

    /// All of them.
    fn sum(&self) -> u64 {
        self.0.iter().map(|counter| counter.0.load(Ordering::Acquire)).sum()
    }
}

/// What a world counts.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) submitted: OfRanks,
    pub(super) enqueued: OfRanks,
    pub(super) done: OfRanks,
    pub(super) failed: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) rebuilt: AtomicU64,
    /// Requests that nobody wants and that are not dropped yet.
    discarded: Arc<AtomicU64>,
}

/// One more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// Has another thread drop a request that nobody wants, as its destructor may be user code.
    pub(super) fn discard(&self, request: impl Send + 'static) {
        let discarded = Arc::clone(&self.discarded);
        count(&discarded);
        callbacks::run(move || {
            dropped(request);
            discarded.fetch_sub(1, Ordering::Release);
        });
    }

    /// Whether all requests that nobody wants were dropped.
    pub(super) fn all_dropped(&self) -> bool {
        self.discarded.load(Ordering::Acquire) == 0
    }

    pub(super) fn read(&self) -> Metrics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        // The answers first: what ends meanwhile is counted as pending rather than below zero.
        let (done, failed, cancelled) = (self.done.sum(), of(&self.failed), of(&self.cancelled));
        let submitted = self.submitted.sum();
        Metrics {
            submitted,
            enqueued: self.enqueued.sum(),
            done,
            failed,
            cancelled,
            pending: submitted.saturating_sub(done + failed + cancelled),
            lost: of(&self.lost),
            rebuilt: of(&self.rebuilt),
        }
    }
}

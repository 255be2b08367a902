//! How far a communicator has come.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::lock::lock;
use crate::meet::futex::SLICE;

/// How far the batches of a communicator, and of those that share its resources, have come. They run in the order in which they were
/// launched, on whatever streams.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// How many there are. Held while one is enqueued, so streams see them in one order.
    pub(crate) launched: Mutex<u64>,
    done: AtomicU64,
    running: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Progress {
    /// Waits until `count` batches are done, or `stop` says to stop. Whether they are.
    pub(crate) fn wait(&self, count: u64, mut stop: impl FnMut() -> bool) -> bool {
        if self.done.load(Ordering::Acquire) >= count {
            return true;
        }
        let mut guard = lock(&self.lock);
        while self.done.load(Ordering::Acquire) < count {
            if stop() {
                return false;
            }
            guard = self.changed.wait_timeout(guard, SLICE).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Whether `count` batches are done.
    pub(crate) fn has_come(&self, count: u64) -> bool {
        self.done.load(Ordering::Acquire) >= count
    }

    /// A batch touches memory, or may.
    pub(crate) fn begin(&self) {
        self.running.store(true, Ordering::SeqCst);
    }

    /// Whether a batch does.
    pub(crate) fn running(&self) -> bool {
        self.running.load(Ordering::SeqCst)
    }

    /// The batch that has begun no longer does.
    pub(crate) fn end(&self) {
        self.running.store(false, Ordering::SeqCst);
    }

    /// One more batch is done, or will never run.
    pub(crate) fn finish(&self) {
        let _guard = lock(&self.lock);
        self.done.fetch_add(1, Ordering::Release);
        self.changed.notify_all();
    }

    /// Makes every sleeper look again.
    pub(super) fn nudge(&self) {
        let _guard = lock(&self.lock);
        self.changed.notify_all();
    }
}

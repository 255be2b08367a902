//! The flag that stops communicators.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::lock::lock;

/// Somebody who waits, and looks at the flag when woken.
pub(crate) trait Sleeper: Debug + Send + Sync {
    fn wake(&self);
}

/// The flag that stops everything a communicator does: for good in an abort, for a while in a revoke. A child made with `splitShare` has its parent's.
#[derive(Debug, Default)]
pub(crate) struct AbortFlag {
    set: AtomicBool,
    /// How often everything was stopped and went on.
    epoch: AtomicU32,
    /// Who sleeps while it is not set.
    sleepers: Mutex<Vec<Weak<dyn Sleeper>>>,
    /// Flags of children that are being made: nobody else knows them yet.
    making: Mutex<Vec<Arc<AbortFlag>>>,
}

impl AbortFlag {
    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Sets the flag, and wakes every wait of this process that it ends.
    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::SeqCst);
        lock(&self.sleepers).iter().filter_map(Weak::upgrade).for_each(|sleeper| sleeper.wake());
        for child in std::mem::take(&mut *lock(&self.making)) {
            child.set();
        }
    }

    /// How often everything was stopped by a revoke. What began in an earlier epoch never goes on.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// What has begun will have been stopped.
    pub(super) fn next_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes a stop back. Who did not see it in time, knows it by the epoch.
    pub(super) fn take_back(&self) {
        self.set.store(false, Ordering::SeqCst);
    }

    /// From now on `sleeper` is woken when the flag is set.
    pub(super) fn watch(&self, sleeper: Weak<dyn Sleeper>) {
        let mut sleepers = lock(&self.sleepers);
        sleepers.retain(|other| other.strong_count() > 0);
        sleepers.push(sleeper);
    }

    /// Sets `child` as well, if this flag is set while `work` runs.
    pub(crate) fn with_child<R>(&self, child: &Arc<Self>, work: impl FnOnce() -> R) -> R {
        lock(&self.making).push(child.clone());
        if self.is_set() {
            child.set();
        }
        let result = work();
        lock(&self.making).retain(|other| !Arc::ptr_eq(other, child));
        result
    }
}

//! What a rank waits for in a comparison with the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock;

/// What a rank waits for, or has waited for until that failed.
#[derive(Debug, Clone)]
pub(crate) struct Wait {
    /// In words.
    pub(crate) what: Arc<str>,
    /// When it has failed.
    pub(crate) end: Option<u64>,
}

/// It, and after how many operations.
#[derive(Debug, Default)]
pub(super) struct Compared {
    wait: Mutex<Option<(u64, Wait)>>,
    /// Whether there is one, for who clears it after each comparison.
    is_set: AtomicBool,
}

impl Compared {
    fn lock(&self) -> MutexGuard<'_, Option<(u64, Wait)>> {
        self.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, after: u64, what: Arc<str>) {
        *self.lock() = Some((after, Wait { what, end: None }));
        self.is_set.store(true, Ordering::Relaxed);
    }

    /// It has failed now.
    pub(super) fn end(&self) {
        self.lock().iter_mut().for_each(|(_, wait)| wait.end = Some(clock::tick()));
    }

    /// There is none any more. By the thread that has set it, or one that has its lock since.
    #[inline]
    pub(super) fn clear(&self) {
        if self.is_set.load(Ordering::Relaxed) {
            self.is_set.store(false, Ordering::Relaxed);
            *self.lock() = None;
        }
    }

    /// The same, if there were so many.
    pub(super) fn get(&self, after: u64) -> Option<Wait> {
        let told = self.lock().clone();
        told.filter(|(number, _)| *number == after).map(|(_, wait)| wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_has_failed_says_when_until_the_next_succeeds() {
        let compared = Compared::default();
        compared.clear();
        assert!(compared.get(0).is_none());
        compared.set(3, "one".into());
        assert!(compared.get(3).is_some_and(|wait| wait.end.is_none()));
        assert!(compared.get(4).is_none());
        compared.end();
        assert!(compared.get(3).is_some_and(|wait| &*wait.what == "one" && wait.end.is_some()));
        compared.set(3, "two".into());
        assert!(compared.get(3).is_some_and(|wait| &*wait.what == "two" && wait.end.is_none()));
        compared.end();
        compared.clear();
        assert!(compared.get(3).is_none());
    }
}

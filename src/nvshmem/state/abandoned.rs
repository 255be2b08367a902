//! Objects that were given up while they were in use. Meetings end them once nobody uses them.

use std::time::{Duration, Instant};

use crate::lock::{Mutex, MutexGuard};

/// How long what was given up tells that the next one would be waited for in vain as well, as at the end of a scope.
const KEPT: Duration = Duration::from_secs(1);

/// Ends one thing of a context for this operation, if that can be, without a wait. Whether it is over.
type End<C> = Box<dyn FnMut(&C, &'static str) -> bool + Send>;

/// All of that. Where the context goes before, it stays as it is.
pub(crate) struct Left<C> {
    all: Mutex<Vec<End<C>>>,
    /// When the last of it was given up.
    last: Mutex<Option<Instant>>,
}

impl<C> Default for Left<C> {
    fn default() -> Self {
        Self { all: Mutex::default(), last: Mutex::default() }
    }
}

impl<C> Left<C> {
    fn all(&self) -> MutexGuard<'_, Vec<End<C>>> {
        self.all.lock()
    }

    pub(crate) fn add(&self, end: End<C>) {
        self.all().push(end);
        *self.last.lock() = Some(Instant::now());
    }

    /// Whether something was given up a moment ago.
    pub(crate) fn was_added_to(&self) -> bool {
        self.last.lock().is_some_and(|last| last.elapsed() < KEPT)
    }

    /// Ends what can be ended by now, and says whether that is all. On this PE alone.
    pub(crate) fn end(&self, context: &C, operation: &'static str) -> bool {
        let mut left = std::mem::take(&mut *self.all());
        left.retain_mut(|end| !end(context, operation));
        let mut all = self.all();
        all.append(&mut left);
        all.is_empty()
    }
}

//! Objects that were given up while they were in use. Meetings end them once nobody uses them.

use std::time::{Duration, Instant};

use crate::callbacks;
use crate::lock::{Mutex, MutexGuard};

/// How long what was given up tells that the next one would be waited for in vain as well, as at the end of a scope.
const KEPT: Duration = Duration::from_secs(1);

/// How long a meeting waits until objects that it has ended are dropped.
const DROP: Duration = Duration::from_millis(100);

/// Ends one object of a context for this operation, if that can be, without a wait. Returns the object when it is over.
type End<C> = Box<dyn FnMut(&C, &'static str) -> Option<Object> + Send>;

/// An object that is over, and has not been dropped.
pub(crate) type Object = Box<dyn Send>;

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

    /// Ends what can be ended by now, on this PE alone. Returns true if that is all.
    ///
    /// The destructors may be the user's, and other PEs wait for this one, so another thread runs them.
    pub(crate) fn end(&self, context: &C, operation: &'static str) -> bool {
        let mut left = std::mem::take(&mut *self.all());
        let mut over = Vec::new();
        left.retain_mut(|end| {
            let object = end(context, operation);
            let is_left = object.is_none();
            over.extend(object);
            is_left
        });
        if !over.is_empty() {
            callbacks::drop_within(over, DROP);
        }
        let mut all = self.all();
        all.append(&mut left);
        all.is_empty()
    }
}

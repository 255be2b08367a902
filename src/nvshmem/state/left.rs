//! What was given up and could not be ended then: meetings end it when nobody uses it.

use crate::lock::{Mutex, MutexGuard};

/// Ends one thing of a context for this operation, if that can be, without a wait. Whether it is over.
type End<C> = Box<dyn FnMut(&C, &'static str) -> bool + Send>;

/// All of that. Where the context goes before, it stays as it is.
pub(crate) struct Left<C>(Mutex<Vec<End<C>>>);

impl<C> Default for Left<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C> Left<C> {
    fn all(&self) -> MutexGuard<'_, Vec<End<C>>> {
        self.0.lock()
    }

    pub(crate) fn add(&self, end: End<C>) {
        self.all().push(end);
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

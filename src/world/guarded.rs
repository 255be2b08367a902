//! Code of others on the threads of a world: a panic of it ends here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::panicked;

/// What `run` gives; `None` where it has panicked.
pub(super) fn guarded<T>(run: impl FnOnce() -> T) -> Option<T> {
    caught(run).ok()
}

/// What `run` gives, or with what it has panicked.
pub(super) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|thrown| {
        let said = panicked::said(&*thrown).map(|said| format!(": {said}")).unwrap_or_default();
        // It may panic itself where it is dropped.
        std::mem::forget(thrown);
        format!("it has panicked{said}")
    })
}

/// Drops what others have made, as its drop may be code of users.
pub(super) fn dropped<T>(value: T) {
    guarded(|| drop(value));
}

/// Futures that are to be told of something, once no lock is held: to wake one may run it.
#[derive(Debug, Default)]
#[must_use = "they wait until they are woken"]
pub(super) struct Wakers(pub(super) Vec<Waker>);

impl Wakers {
    pub(super) fn wake(self) {
        for waker in self.0 {
            guarded(|| waker.wake());
        }
    }
}

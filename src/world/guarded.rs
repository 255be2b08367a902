//! Code of others on the threads of a world: a panic of it ends here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// What `run` gives; `None` where it has panicked.
pub(super) fn guarded<T>(run: impl FnOnce() -> T) -> Option<T> {
    // What was thrown may panic itself where it is dropped.
    catch_unwind(AssertUnwindSafe(run)).map_err(std::mem::forget).ok()
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

//! Ends the communicators that were started within a [`Clique::spmd`](crate::nccl::Clique::spmd)
//! when that fails.
//!
//! The peers of a rank that fails wait for it not only in the clique that runs the program, but
//! also in communicators that they have started, or are starting, on their threads. A scope lists
//! those.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::error::Cause;
use crate::lock::{Mutex, MutexGuard};
use crate::nccl::rank::inner::Inner;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Scope>>> = const { RefCell::new(None) };
}

/// One run of a program by the ranks of a clique.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// The run that this one was started in.
    outer: Option<Arc<Self>>,
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    communicators: Vec<Weak<Inner>>,
    /// Why the program has failed.
    failed: Option<Cause>,
}

impl Scope {
    /// A run that starts on this thread.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { outer: current(), made: Mutex::default() })
    }

    /// Has the communicators that this thread starts belong to the run, as long as the guard lives.
    pub(crate) fn join(self: &Arc<Self>) -> Joined {
        // A thread whose thread-locals are gone, as when it ends or the process exits, has no run.
        let before = CURRENT.try_with(|current| current.replace(Some(Arc::clone(self))));
        Joined { before: before.ok().flatten() }
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock()
    }

    /// This run, and those that it was started in.
    fn with_outer(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |scope| scope.outer.as_deref())
    }

    /// Why communicators that are being started must not go on: the program has failed.
    pub(crate) fn failure(&self) -> Option<Cause> {
        self.with_outer().find_map(|scope| scope.made().failed.clone())
    }

    /// Has `members` end with the run. A caller that asks for the failure after this misses none.
    pub(crate) fn adopt(&self, members: &[Arc<Inner>]) {
        for scope in self.with_outer() {
            let mut made = scope.made();
            made.communicators.retain(|inner| inner.strong_count() > 0);
            made.communicators.extend(members.iter().map(Arc::downgrade));
        }
    }

    /// Notes that the program has failed. Returns the ranks that must end with it. No more can
    /// join.
    pub(crate) fn fail(&self, reason: &Cause) -> Vec<Arc<Inner>> {
        let mut made = self.made();
        made.failed.get_or_insert_with(|| reason.clone());
        made.communicators.drain(..).filter_map(|inner| inner.upgrade()).collect()
    }
}

/// The run that this thread takes part in.
pub(crate) fn current() -> Option<Arc<Scope>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// The part that a thread takes in a run. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Joined {
    before: Option<Arc<Scope>>,
}

impl Drop for Joined {
    fn drop(&mut self) {
        let before = self.before.take();
        let _ = CURRENT.try_with(|current| current.replace(before));
    }
}

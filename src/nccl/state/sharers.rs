//! Communicators that share what NCCL has for them, as far as they are in this process: a communicator, its parts, and theirs.
//!
//! NCCL has one flag for all sharers of a rank, which an abort of any of them raises, and one set of channels, streams and threads, which
//! goes with the last of them. Nothing of that may be touched by two threads at once; and who destroys the last rank of a communicator
//! takes down what its other ranks have as well. So all of them end together, on one thread: when the last has been closed, or at once
//! when one is aborted. What was closed before rests until then.

use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The sharers; `R` is a rank of one of them.
#[derive(Debug)]
pub(crate) struct Sharers<R> {
    all: Mutex<All<R>>,
    ending: Mutex<()>,
}

#[derive(Debug)]
struct All<R> {
    /// How many ranks NCCL has not let go of, those that are being started included.
    open: usize,
    /// Who was closed.
    resting: Vec<Arc<R>>,
    /// Who was aborted, and was not taken down.
    doomed: Vec<Arc<R>>,
    failed: bool,
}

/// What becomes of a rank that was closed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rest<R> {
    /// It rests until the others end.
    Rests,
    /// It was the last: these are to be taken down now.
    Last(Vec<Arc<R>>),
    /// One was aborted, and so is it.
    Failed,
}

impl<R> Default for Sharers<R> {
    fn default() -> Self {
        let all = All { open: 0, resting: Vec::new(), doomed: Vec::new(), failed: false };
        Self { all: Mutex::new(all), ending: Mutex::default() }
    }
}

impl<R> Sharers<R> {
    /// Never held across a call.
    fn all(&self) -> MutexGuard<'_, All<R>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many more ranks are about to start.
    pub(crate) fn join(&self, ranks: usize) {
        self.all().open += ranks;
    }

    /// NCCL has let go of one.
    pub(crate) fn leave(&self) {
        self.all().open -= 1;
    }

    /// One was closed: nobody uses it any more.
    pub(crate) fn rest(&self, rank: Arc<R>) -> Rest<R> {
        let mut all = self.all();
        if all.failed {
            return Rest::Failed;
        }
        all.resting.push(rank);
        if all.resting.len() < all.open { Rest::Rests } else { Rest::Last(std::mem::take(&mut all.resting)) }
    }

    /// Whether `rank` was closed, and rests.
    pub(crate) fn rests(&self, rank: &R) -> bool {
        self.all().resting.iter().any(|one| ptr::eq(&**one, rank))
    }

    /// One was aborted, and all others with it.
    pub(crate) fn doom(&self, rank: Arc<R>) {
        let mut all = self.all();
        all.failed = true;
        all.doomed.push(rank);
    }

    /// Who is to be taken down because one was aborted: each for one caller.
    pub(crate) fn condemned(&self) -> Vec<Arc<R>> {
        let mut all = self.all();
        let mut condemned = std::mem::take(&mut all.doomed);
        condemned.append(&mut all.resting);
        condemned
    }

    /// For the one thread that takes down sharers.
    pub(crate) fn ending(&self) -> MutexGuard<'_, ()> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_takes_all_down() {
        let sharers = Sharers::<u32>::default();
        sharers.join(2);
        let one = Arc::new(1);
        assert!(!sharers.rests(&one));
        assert_eq!(sharers.rest(Arc::clone(&one)), Rest::Rests);
        assert!(sharers.rests(&one));
        // One that is being split off.
        sharers.join(1);
        assert_eq!(sharers.rest(Arc::new(2)), Rest::Rests);
        assert_eq!(sharers.rest(Arc::new(3)), Rest::Last([1, 2, 3].map(Arc::new).to_vec()));
        assert!(sharers.condemned().is_empty());
    }

    #[test]
    fn one_that_fails_takes_all_with_it() {
        let sharers = Sharers::default();
        sharers.join(4);
        assert_eq!(sharers.rest(Arc::new(1)), Rest::Rests);
        sharers.doom(Arc::new(2));
        sharers.doom(Arc::new(3));
        assert_eq!(sharers.condemned(), [2, 3, 1].map(Arc::new));
        assert_eq!(sharers.rest(Arc::new(4)), Rest::Failed);
        sharers.doom(Arc::new(4));
        assert_eq!(sharers.condemned(), [Arc::new(4)]);
        assert!(sharers.condemned().is_empty());
    }
}

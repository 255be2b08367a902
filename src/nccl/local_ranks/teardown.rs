//! Decides when ranks of this process may be freed: ranks of one communicator, and of all
//! communicators that share NCCL's resources with it.
//!
//! The ranks of one process that share resources have one abort flag per rank, which an abort of
//! any of them raises, and one set of channels, streams and threads, which NCCL frees with the last
//! of them. No two threads may touch any of that at once, and destroying the last rank of a
//! communicator also takes down what its other ranks have. So ranks that share are all freed by one
//! thread: when the last of them has been closed, or as soon as one is aborted. A rank that was
//! closed earlier waits until then. Ranks that share nothing are closed one by one.
//!
//! An abort frees nothing before every rank is *ready*: no thread is inside NCCL on it, and if one
//! rank is revoked, all are. A rank that is revoked waits until the others let go of what they have
//! mapped of it: they do so when they are revoked or finalized, or when the last of all is freed.
//! So each rank is revoked on its own thread, and none once the first is aborted.

use std::ptr;
use std::sync::Arc;

use crate::lock::{Mutex, MutexGuard};

/// How far the ranks have come that are freed together; `R` is a rank.
#[derive(Debug)]
pub(crate) struct Teardown<R> {
    progress: Mutex<Progress<R>>,
    freeing: Mutex<()>,
}

#[derive(Debug)]
struct Progress<R> {
    /// Whether the ranks share NCCL's resources.
    shares: bool,
    /// How many ranks NCCL has not freed, including those that are being started.
    open: usize,
    starting: usize,
    /// Ranks that share, were closed, and wait for the others.
    closed: Vec<Arc<R>>,
    /// Ranks that share nothing and are being destroyed.
    destroyed: Vec<Arc<R>>,
    /// Ranks that were aborted, and that no thread has begun to free.
    aborted: Vec<Aborted<R>>,
    /// Whether any was aborted.
    failed: bool,
    /// Whether each of `aborted` is revoked before one is freed.
    revokes: bool,
    /// Whether a thread frees ranks that share nothing and were aborted. NCCL frees them when the
    /// last is.
    frees: bool,
}

#[derive(Debug)]
struct Aborted<R> {
    rank: Arc<R>,
    /// Whether no thread is inside NCCL on it.
    is_left: bool,
    is_revoked: bool,
}

impl<R> Aborted<R> {
    fn is_ready(&self, revokes: bool) -> bool {
        self.is_left && (self.is_revoked || !revokes)
    }
}

/// What the thread of a rank that was closed does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AfterClose<R> {
    /// Destroys the rank, which shares nothing.
    Destroy,
    /// Nothing: the rank waits for those that share its resources.
    Wait,
    /// Destroys all of these ranks: this one was the last that was closed.
    DestroyAll(Vec<Arc<R>>),
    /// Aborts the rank: another one was aborted.
    Abort,
}

/// What the thread of a rank that was aborted does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AfterAbort<R> {
    /// Waits: not all ranks are ready.
    Wait,
    /// Frees the rank.
    Free,
    /// Frees all of these ranks, which share their resources.
    FreeAll(Vec<Arc<R>>),
    /// Nothing: another thread frees the rank.
    Leave,
}

impl<R> Teardown<R> {
    pub(super) fn new() -> Self {
        let progress = Progress {
            shares: false,
            open: 0,
            starting: 0,
            closed: Vec::new(),
            destroyed: Vec::new(),
            aborted: Vec::new(),
            failed: false,
            revokes: false,
            frees: false,
        };
        Self { progress: Mutex::new(progress), freeing: Mutex::default() }
    }

    /// Never held across a call.
    fn progress(&self) -> MutexGuard<'_, Progress<R>> {
        self.progress.lock()
    }

    /// What is split off from these ranks shares their resources.
    pub(super) fn set_shared(&self) {
        self.progress().shares = true;
    }

    /// Whether what is split off from these ranks shares their resources.
    pub(crate) fn is_shared(&self) -> bool {
        self.progress().shares
    }

    /// `ranks` more ranks are about to start.
    pub(super) fn expect(&self, ranks: usize) {
        let mut progress = self.progress();
        progress.open += ranks;
        progress.starting += ranks;
    }

    /// `ranks` ranks have started.
    pub(super) fn started(&self, ranks: usize) {
        let mut progress = self.progress();
        progress.starting = progress.starting.saturating_sub(ranks);
    }

    /// A rank has not started, and will not.
    pub(super) fn withdraw(&self) {
        let mut progress = self.progress();
        progress.open -= 1;
        progress.starting = progress.starting.saturating_sub(1);
    }

    /// NCCL has freed `rank`.
    pub(super) fn remove(&self, rank: &R) {
        let mut progress = self.progress();
        progress.open -= 1;
        progress.destroyed.retain(|one| !ptr::eq(&**one, rank));
        progress.aborted.retain(|one| !ptr::eq(&*one.rank, rank));
    }

    /// `rank` was closed: nothing uses it any more.
    pub(crate) fn close(&self, rank: Arc<R>) -> AfterClose<R> {
        let mut progress = self.progress();
        if progress.failed {
            return AfterClose::Abort;
        }
        if !progress.shares {
            progress.destroyed.push(rank);
            return AfterClose::Destroy;
        }
        progress.closed.push(rank);
        if progress.closed.len() < progress.open {
            return AfterClose::Wait;
        }
        AfterClose::DestroyAll(std::mem::take(&mut progress.closed))
    }

    /// Whether `rank` was closed, and waits for the ranks that share its resources.
    pub(crate) fn is_waiting(&self, rank: &R) -> bool {
        self.progress().closed.iter().any(|one| ptr::eq(&**one, rank))
    }

    /// `rank` was aborted.
    pub(crate) fn abort(&self, rank: Arc<R>) {
        self.progress().abort(rank);
    }

    /// Aborts the ranks that were closed and wait, if another one was aborted. The caller has each
    /// of them get ready.
    pub(crate) fn abort_waiting(&self) -> Vec<Arc<R>> {
        let mut progress = self.progress();
        let waiting = if progress.failed { std::mem::take(&mut progress.closed) } else { Vec::new() };
        waiting.iter().for_each(|rank| progress.abort(Arc::clone(rank)));
        waiting
    }

    /// Has every rank be revoked before it counts as ready. Does nothing if a thread frees ranks
    /// already.
    pub(crate) fn require_revoke(&self, rank: &R) {
        let mut progress = self.progress();
        progress.revokes |= !progress.frees && progress.find(rank).is_some();
    }

    /// Whether `rank` has to be revoked.
    pub(crate) fn must_revoke(&self, rank: &R) -> bool {
        let mut progress = self.progress();
        progress.revokes && progress.find(rank).is_some()
    }

    /// No thread is inside NCCL on `rank` any more.
    pub(crate) fn set_left(&self, rank: &R) {
        self.progress().find(rank).into_iter().for_each(|one| one.is_left = true);
    }

    /// `rank` was revoked, as far as that is possible.
    pub(crate) fn set_revoked(&self, rank: &R) {
        self.progress().find(rank).into_iter().for_each(|one| one.is_revoked = true);
    }

    /// Whether no thread is inside NCCL on any aborted rank that `which` picks.
    pub(crate) fn are_left(&self, which: impl Fn(&R) -> bool) -> bool {
        self.progress().aborted.iter().all(|one| one.is_left || !which(&one.rank))
    }

    /// Whether all ranks are ready, apart from those that are being started.
    pub(crate) fn are_ready(&self) -> bool {
        let progress = self.progress();
        progress.are_ready(progress.starting)
    }

    /// Says what the thread of `rank`, which was aborted, does next. Every rank that NCCL has not
    /// freed has to be ready, apart from those that are being destroyed. If the ranks share their
    /// resources, none may be starting.
    pub(crate) fn next(&self, rank: &R) -> AfterAbort<R> {
        let mut progress = self.progress();
        if progress.find(rank).is_none() {
            AfterAbort::Leave
        } else if !progress.are_ready(if progress.shares { 0 } else { progress.starting }) {
            AfterAbort::Wait
        } else if progress.shares {
            AfterAbort::FreeAll(std::mem::take(&mut progress.aborted).into_iter().map(|one| one.rank).collect())
        } else {
            progress.frees = true;
            AfterAbort::Free
        }
    }

    /// The lock of the one thread that frees ranks that share.
    pub(crate) fn lock_freeing(&self) -> MutexGuard<'_, ()> {
        self.freeing.lock()
    }
}

impl<R> Progress<R> {
    fn abort(&mut self, rank: Arc<R>) {
        self.failed = true;
        self.destroyed.retain(|one| !Arc::ptr_eq(one, &rank));
        self.aborted.push(Aborted { rank, is_left: false, is_revoked: false });
    }

    /// Whether all ranks are ready, apart from `except` many and those that are being destroyed.
    fn are_ready(&self, except: usize) -> bool {
        self.aborted.len() + self.destroyed.len() + except >= self.open
            && self.aborted.iter().all(|one| one.is_ready(self.revokes))
    }

    fn find(&mut self, rank: &R) -> Option<&mut Aborted<R>> {
        self.aborted.iter_mut().find(|one| ptr::eq(&*one.rank, rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `N` ranks that have started.
    fn started<const N: usize>(shares: bool) -> (Teardown<usize>, [Arc<usize>; N]) {
        let teardown = Teardown::new();
        if shares {
            teardown.set_shared();
        }
        teardown.expect(N);
        teardown.started(N);
        (teardown, std::array::from_fn(Arc::new))
    }

    #[test]
    fn the_last_closed_rank_destroys_all() {
        let (teardown, [one, two]) = started(true);
        assert!(!teardown.is_waiting(&one));
        assert_eq!(teardown.close(Arc::clone(&one)), AfterClose::Wait);
        assert!(teardown.is_waiting(&one));
        // A rank is being split off.
        teardown.expect(1);
        assert_eq!(teardown.close(Arc::clone(&two)), AfterClose::Wait);
        let three = Arc::new(3);
        assert_eq!(teardown.close(Arc::clone(&three)), AfterClose::DestroyAll(vec![one, two, three]));
    }

    #[test]
    fn an_aborted_rank_aborts_those_that_share() {
        let (teardown, all) = started::<4>(true);
        assert_eq!(teardown.close(Arc::clone(&all[0])), AfterClose::Wait);
        assert!(teardown.abort_waiting().is_empty(), "none has failed");
        teardown.abort(Arc::clone(&all[1]));
        assert_eq!(teardown.abort_waiting(), [Arc::clone(&all[0])]);
        assert!(!teardown.is_waiting(&all[0]));
        teardown.abort(Arc::clone(&all[2]));
        all.iter().for_each(|rank| teardown.set_left(rank));
        // One rank is still active.
        assert_eq!(teardown.next(&all[0]), AfterAbort::Wait);
        assert_eq!(teardown.close(Arc::clone(&all[3])), AfterClose::Abort);
        teardown.abort(Arc::clone(&all[3]));
        assert_eq!(teardown.next(&all[0]), AfterAbort::Wait);
        teardown.set_left(&all[3]);
        assert_eq!(
            teardown.next(&all[2]),
            AfterAbort::FreeAll([1, 0, 2, 3].map(|at: usize| Arc::clone(&all[at])).to_vec())
        );
        // It is too late to revoke.
        teardown.require_revoke(&all[0]);
        assert!(!teardown.must_revoke(&all[0]));
        assert_eq!(teardown.next(&all[0]), AfterAbort::Leave);
    }

    #[test]
    fn if_one_is_revoked_all_are() {
        for shares in [true, false] {
            let (teardown, all) = started::<2>(shares);
            all.iter().for_each(|rank| teardown.abort(Arc::clone(rank)));
            all.iter().for_each(|rank| teardown.set_left(rank));
            teardown.require_revoke(&all[1]);
            assert!(teardown.must_revoke(&all[0]));
            teardown.set_revoked(&all[0]);
            assert_eq!(teardown.next(&all[0]), AfterAbort::Wait);
            teardown.set_revoked(&all[1]);
            // Another rank is being started.
            teardown.expect(1);
            assert!(teardown.are_ready());
            if shares {
                assert_eq!(teardown.next(&all[0]), AfterAbort::Wait);
            }
            teardown.withdraw();
            match teardown.next(&all[0]) {
                AfterAbort::FreeAll(taken) => assert!(shares && taken == all),
                next => assert!(!shares && next == AfterAbort::Free && teardown.next(&all[1]) == AfterAbort::Free),
            }
            all.iter().for_each(|rank| teardown.remove(rank));
            assert_eq!(teardown.next(&all[0]), AfterAbort::Leave);
        }
    }

    #[test]
    fn no_rank_is_revoked_once_one_is_freed() {
        let (teardown, all) = started::<4>(false);
        assert_eq!(teardown.close(Arc::clone(&all[0])), AfterClose::Destroy);
        assert_eq!(teardown.close(Arc::clone(&all[1])), AfterClose::Destroy);
        teardown.abort(Arc::clone(&all[2]));
        assert!(!teardown.are_left(|_| true) && teardown.are_left(|rank| *rank == 3));
        teardown.set_left(&all[2]);
        assert!(teardown.are_left(|_| true));
        assert_eq!(teardown.next(&all[2]), AfterAbort::Wait, "one rank is still active");
        teardown.abort(Arc::clone(&all[3]));
        teardown.set_left(&all[3]);
        assert_eq!(teardown.next(&all[2]), AfterAbort::Free);
        // This rank could not be destroyed.
        teardown.abort(Arc::clone(&all[1]));
        assert_eq!(teardown.next(&all[3]), AfterAbort::Wait);
        teardown.set_left(&all[1]);
        teardown.remove(&all[0]);
        teardown.require_revoke(&all[3]);
        assert_eq!(teardown.next(&all[3]), AfterAbort::Free);
        assert!(!teardown.must_revoke(&all[3]));
    }
}

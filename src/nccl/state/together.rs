//! Ranks of this process that end together: those of a communicator, and of those that share what NCCL has for it: its parts, and theirs.
//!
//! NCCL has one flag for all sharers of a rank, which an abort of any of them raises, and one set of channels, streams and threads, which
//! goes with the last of them. Nothing of that may be touched by two threads at once; and who destroys the last rank of a communicator
//! takes down what its other ranks have as well. So sharers all end on one thread: when the last has been closed, or at once when one is
//! aborted. What was closed before rests until then. Who shares nothing is closed *apart*, rank by rank.
//!
//! Before an abort frees anything, each is *ready*: nobody is inside it, and where one is revoked, all are. A rank that is revoked waits
//! for the others to let go of what they have of it, which they do in a revoke, in a finalize, or when the last of all is freed. So each is
//! revoked on its own thread, and none any more once the first is aborted.

use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Those that end together; `R` is a rank.
#[derive(Debug)]
pub(crate) struct Together<R> {
    all: Mutex<All<R>>,
    ending: Mutex<()>,
}

#[derive(Debug)]
struct All<R> {
    /// Whether they share what NCCL has for them.
    shares: bool,
    /// How many ranks NCCL has not let go of, those that are being started included.
    open: usize,
    starting: usize,
    /// Sharers that were closed.
    resting: Vec<Arc<R>>,
    /// Who shares nothing and is being destroyed in order.
    apart: Vec<Arc<R>>,
    /// Whether one was aborted that shares nothing: NCCL lets go of it when the last is.
    aborts: bool,
    /// Who was aborted, and was not taken down.
    doomed: Vec<Doomed<R>>,
    failed: bool,
    /// Whether each of those is revoked before one is freed.
    revokes: bool,
}

#[derive(Debug)]
struct Doomed<R> {
    rank: Arc<R>,
    /// Nobody is inside any more.
    clear: bool,
    revoked: bool,
}

impl<R> Doomed<R> {
    fn is_ready(&self, revokes: bool) -> bool {
        self.clear && (self.revoked || !revokes)
    }
}

/// What becomes of a rank that was closed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rest<R> {
    /// It shares nothing, and is destroyed now.
    Apart,
    /// It rests until the others end.
    Rests,
    /// It was the last: these are to be taken down now.
    Last(Vec<Arc<R>>),
    /// One was aborted, and so is it.
    Failed,
}

/// What a rank may do that was aborted, and gets ready.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pass<R> {
    /// Others are not ready.
    Wait,
    /// All are: it takes itself down.
    Alone,
    /// All are, and share what they have: it takes all of these down.
    All(Vec<Arc<R>>),
    /// Another takes it down.
    Taken,
}

impl<R> Together<R> {
    pub(super) fn new() -> Self {
        let all = All {
            shares: false,
            open: 0,
            starting: 0,
            resting: Vec::new(),
            apart: Vec::new(),
            aborts: false,
            doomed: Vec::new(),
            failed: false,
            revokes: false,
        };
        Self { all: Mutex::new(all), ending: Mutex::default() }
    }

    /// Never held across a call.
    fn all(&self) -> MutexGuard<'_, All<R>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What NCCL has for them is shared by what is split off from them.
    pub(super) fn set_shared(&self) {
        self.all().shares = true;
    }

    pub(crate) fn are_shared(&self) -> bool {
        self.all().shares
    }

    /// So many more ranks are about to start.
    pub(super) fn join(&self, ranks: usize) {
        let mut all = self.all();
        all.open += ranks;
        all.starting += ranks;
    }

    /// So many have started.
    pub(super) fn admit(&self, ranks: usize) {
        let mut all = self.all();
        all.starting = all.starting.saturating_sub(ranks);
    }

    /// One has not started, and will not.
    pub(super) fn withdraw(&self) {
        let mut all = self.all();
        all.open -= 1;
        all.starting = all.starting.saturating_sub(1);
    }

    /// NCCL has let go of `rank`.
    pub(super) fn leave(&self, rank: &R) {
        let mut all = self.all();
        all.open -= 1;
        all.apart.retain(|one| !ptr::eq(&**one, rank));
        all.doomed.retain(|one| !ptr::eq(&*one.rank, rank));
    }

    /// One was closed: nobody uses it any more.
    pub(crate) fn rest(&self, rank: Arc<R>) -> Rest<R> {
        let mut all = self.all();
        if all.failed {
            return Rest::Failed;
        }
        if !all.shares {
            all.apart.push(rank);
            return Rest::Apart;
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
        self.all().doom(rank);
    }

    /// Dooms who rests, where one was aborted; the caller has each get ready.
    pub(crate) fn wake(&self) -> Vec<Arc<R>> {
        let mut all = self.all();
        let woken = if all.failed { std::mem::take(&mut all.resting) } else { Vec::new() };
        woken.iter().for_each(|rank| all.doom(Arc::clone(rank)));
        woken
    }

    /// From now on nobody is ready who was not revoked; without effect where one is aborted already, or another takes `rank` down.
    pub(crate) fn have_all_revoked(&self, rank: &R) {
        let mut all = self.all();
        all.revokes |= !all.aborts && all.find(rank).is_some();
    }

    /// Whether `rank` is to be revoked, as all are.
    pub(crate) fn revokes(&self, rank: &R) -> bool {
        let mut all = self.all();
        all.revokes && all.find(rank).is_some()
    }

    /// Nobody is inside `rank` any more.
    pub(crate) fn set_clear(&self, rank: &R) {
        self.all().find(rank).into_iter().for_each(|one| one.clear = true);
    }

    /// `rank` was revoked, as far as that is possible.
    pub(crate) fn set_revoked(&self, rank: &R) {
        self.all().find(rank).into_iter().for_each(|one| one.revoked = true);
    }

    /// Whether nobody is inside any of `which`, as far as they are doomed.
    pub(crate) fn are_clear(&self, which: impl Fn(&R) -> bool) -> bool {
        self.all().doomed.iter().all(|one| one.clear || !which(&one.rank))
    }

    /// Whether all are ready but those that are being started.
    pub(crate) fn are_quiet(&self) -> bool {
        let all = self.all();
        all.are_ready(all.starting)
    }

    /// What `rank`, which was doomed, may do. Ready are those that NCCL has not let go of, but for those that end apart; and of sharers
    /// none is being started.
    pub(crate) fn pass(&self, rank: &R) -> Pass<R> {
        let mut all = self.all();
        if all.find(rank).is_none() {
            Pass::Taken
        } else if !all.are_ready(if all.shares { 0 } else { all.starting }) {
            Pass::Wait
        } else if all.shares {
            Pass::All(std::mem::take(&mut all.doomed).into_iter().map(|one| one.rank).collect())
        } else {
            all.aborts = true;
            Pass::Alone
        }
    }

    /// For the one thread that takes down sharers.
    pub(crate) fn ending(&self) -> MutexGuard<'_, ()> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> All<R> {
    fn doom(&mut self, rank: Arc<R>) {
        self.failed = true;
        self.apart.retain(|one| !Arc::ptr_eq(one, &rank));
        self.doomed.push(Doomed { rank, clear: false, revoked: false });
    }

    /// Whether all are ready but so many, and those that end apart.
    fn are_ready(&self, but: usize) -> bool {
        self.doomed.len() + self.apart.len() + but >= self.open
            && self.doomed.iter().all(|one| one.is_ready(self.revokes))
    }

    fn find(&mut self, rank: &R) -> Option<&mut Doomed<R>> {
        self.doomed.iter_mut().find(|one| ptr::eq(&*one.rank, rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many ranks that have started.
    fn started<const N: usize>(shares: bool) -> (Together<usize>, [Arc<usize>; N]) {
        let together = Together::new();
        if shares {
            together.set_shared();
        }
        together.join(N);
        together.admit(N);
        (together, std::array::from_fn(Arc::new))
    }

    #[test]
    fn the_last_takes_all_down() {
        let (together, [one, two]) = started(true);
        assert!(!together.rests(&one));
        assert_eq!(together.rest(Arc::clone(&one)), Rest::Rests);
        assert!(together.rests(&one));
        // One that is being split off.
        together.join(1);
        assert_eq!(together.rest(Arc::clone(&two)), Rest::Rests);
        let three = Arc::new(3);
        assert_eq!(together.rest(Arc::clone(&three)), Rest::Last(vec![one, two, three]));
    }

    #[test]
    fn one_that_fails_takes_all_with_it() {
        let (together, all) = started::<4>(true);
        assert_eq!(together.rest(Arc::clone(&all[0])), Rest::Rests);
        assert!(together.wake().is_empty(), "none has failed");
        together.doom(Arc::clone(&all[1]));
        assert_eq!(together.wake(), [Arc::clone(&all[0])]);
        assert!(!together.rests(&all[0]));
        together.doom(Arc::clone(&all[2]));
        all.iter().for_each(|rank| together.set_clear(rank));
        // One goes on.
        assert_eq!(together.pass(&all[0]), Pass::Wait);
        assert_eq!(together.rest(Arc::clone(&all[3])), Rest::Failed);
        together.doom(Arc::clone(&all[3]));
        assert_eq!(together.pass(&all[0]), Pass::Wait);
        together.set_clear(&all[3]);
        assert_eq!(together.pass(&all[2]), Pass::All([1, 0, 2, 3].map(|at: usize| Arc::clone(&all[at])).to_vec()));
        // It is too late now.
        together.have_all_revoked(&all[0]);
        assert!(!together.revokes(&all[0]));
        assert_eq!(together.pass(&all[0]), Pass::Taken);
    }

    #[test]
    fn where_one_is_revoked_all_are() {
        for shares in [true, false] {
            let (together, all) = started::<2>(shares);
            all.iter().for_each(|rank| together.doom(Arc::clone(rank)));
            all.iter().for_each(|rank| together.set_clear(rank));
            together.have_all_revoked(&all[1]);
            assert!(together.revokes(&all[0]));
            together.set_revoked(&all[0]);
            assert_eq!(together.pass(&all[0]), Pass::Wait);
            together.set_revoked(&all[1]);
            // One more is being started.
            together.join(1);
            assert!(together.are_quiet());
            if shares {
                assert_eq!(together.pass(&all[0]), Pass::Wait);
            }
            together.withdraw();
            match together.pass(&all[0]) {
                Pass::All(taken) => assert!(shares && taken == all),
                pass => assert!(!shares && pass == Pass::Alone && together.pass(&all[1]) == Pass::Alone),
            }
            all.iter().for_each(|rank| together.leave(rank));
            assert_eq!(together.pass(&all[0]), Pass::Taken);
        }
    }

    #[test]
    fn nobody_is_revoked_once_one_is_aborted() {
        let (together, all) = started::<4>(false);
        assert_eq!(together.rest(Arc::clone(&all[0])), Rest::Apart);
        assert_eq!(together.rest(Arc::clone(&all[1])), Rest::Apart);
        together.doom(Arc::clone(&all[2]));
        assert!(!together.are_clear(|_| true) && together.are_clear(|rank| *rank == 3));
        together.set_clear(&all[2]);
        assert!(together.are_clear(|_| true));
        assert_eq!(together.pass(&all[2]), Pass::Wait, "one goes on");
        together.doom(Arc::clone(&all[3]));
        together.set_clear(&all[3]);
        assert_eq!(together.pass(&all[2]), Pass::Alone);
        // It could not be destroyed.
        together.doom(Arc::clone(&all[1]));
        assert_eq!(together.pass(&all[3]), Pass::Wait);
        together.set_clear(&all[1]);
        together.leave(&all[0]);
        together.have_all_revoked(&all[3]);
        assert_eq!(together.pass(&all[3]), Pass::Alone);
        assert!(!together.revokes(&all[3]));
    }
}

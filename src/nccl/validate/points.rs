//! Points in the sequence of collectives at which the ranks show each other which windows they have
//! dropped and how large the next ones are, and vote on whether each could make its part.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::lock::Mutex;

/// What a rank shows at a point.
#[derive(Debug, Default, Clone)]
struct Shown {
    /// The windows that it has dropped.
    dropped: Vec<u64>,
    /// Bytes of the window that it makes there.
    bytes: usize,
}

/// For each rank, what it has shown when it came to its last two points.
///
/// Two are enough: a rank comes to a point only after all have left the one before the last,
/// because at the last one each has waited for all others to come.
#[derive(Debug)]
pub(crate) struct Points(Box<[RankState]>);

#[derive(Debug, Default)]
struct RankState {
    shown: Mutex<[Shown; 2]>,
    /// The point, twice, and one more if the rank could make its part.
    votes: [AtomicU64; 2],
}

impl Points {
    pub(crate) fn new(size: usize) -> Self {
        Self((0..size).map(|_| RankState::default()).collect())
    }

    pub(crate) fn show(&self, rank: usize, point: u64, dropped: Vec<u64>, bytes: usize) {
        let mut shown = self.0[rank].shown.lock();
        shown[(point % 2) as usize] = Shown { dropped, bytes };
    }

    /// `rank` could make its part of what comes at a point to which all have come, or not.
    pub(crate) fn vote(&self, rank: usize, point: u64, able: bool) {
        self.0[rank].votes[(point % 2) as usize].store(2 * point + u64::from(able), Ordering::Release);
    }

    /// The vote of each rank, as [`RankState`] has it.
    fn votes(&self, point: u64) -> impl Iterator<Item = u64> {
        self.0.iter().map(move |state| state.votes[(point % 2) as usize].load(Ordering::Acquire))
    }

    /// The ranks that have not voted at a point yet.
    pub(crate) fn undecided(&self, point: u64) -> Vec<usize> {
        self.votes(point).enumerate().filter(|(_, vote)| vote / 2 != point).map(|(rank, _)| rank).collect()
    }

    /// The first rank that could not make its part, when all have voted.
    pub(crate) fn unable(&self, point: u64) -> Option<usize> {
        self.votes(point).position(|vote| vote % 2 == 0)
    }

    /// What each rank shows at a point to which all have come.
    fn shown(&self, point: u64) -> impl Iterator<Item = Shown> {
        let at = (point % 2) as usize;
        self.0.iter().map(move |state| state.shown.lock()[at].clone())
    }

    /// The windows that all ranks have dropped.
    pub(crate) fn common(&self, point: u64) -> Vec<u64> {
        let mut ranks = self.shown(point);
        let mut common = ranks.next().map(|shown| shown.dropped).unwrap_or_default();
        for Shown { dropped, .. } in ranks {
            common.retain(|number| dropped.contains(number));
        }
        common
    }

    /// How many bytes the window of each rank has.
    pub(crate) fn bytes(&self, point: u64) -> Vec<usize> {
        self.shown(point).map(|shown| shown.bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_all_have_dropped() {
        let points = Points::new(3);
        points.show(0, 1, vec![4, 5, 9], 10);
        points.show(1, 1, vec![5, 9], 20);
        points.show(2, 1, vec![9, 2, 5], 0);
        // A rank that is quick.
        points.show(0, 2, vec![4], 1);
        assert_eq!(points.common(1), [5, 9]);
        assert_eq!(points.bytes(1), [10, 20, 0]);
        points.show(1, 2, vec![], 2);
        points.show(2, 2, vec![4], 1);
        assert_eq!(points.common(2), [0u64; 0]);
    }

    #[test]
    fn votes_of_two_points() {
        let points = Points::new(2);
        assert_eq!(points.undecided(1), [0, 1]);
        points.vote(0, 1, true);
        assert_eq!(points.undecided(1), [1]);
        points.vote(1, 1, false);
        assert!(points.undecided(1).is_empty());
        // A rank that is quick.
        points.vote(0, 2, true);
        assert_eq!((points.unable(1), points.undecided(2)), (Some(1), vec![1]));
        points.vote(1, 2, true);
        assert_eq!(points.unable(2), None);
        points.vote(0, 3, false);
        assert_eq!(points.undecided(3), [1]);
    }
}

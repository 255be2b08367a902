//! Points in the sequence of collectives at which the ranks of a clique show each other which windows they have dropped, and how large
//! those are that they are about to make.

use std::sync::{Mutex, PoisonError};

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
/// Two are enough: a rank comes to a point only after all have left the one before the last, because at the last one each
/// has waited for all others to come.
#[derive(Debug)]
pub(crate) struct Points(Box<[Mutex<[Shown; 2]>]>);

impl Points {
    pub(crate) fn new(size: usize) -> Self {
        Self((0..size).map(|_| Mutex::default()).collect())
    }

    pub(crate) fn show(&self, rank: usize, point: u64, dropped: Vec<u64>, bytes: usize) {
        self.0[rank].lock().unwrap_or_else(PoisonError::into_inner)[(point % 2) as usize] = Shown { dropped, bytes };
    }

    /// What each rank shows at a point to which all have come.
    fn shown(&self, point: u64) -> impl Iterator<Item = Shown> {
        let at = (point % 2) as usize;
        self.0.iter().map(move |rank| rank.lock().unwrap_or_else(PoisonError::into_inner)[at].clone())
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
}

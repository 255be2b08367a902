//! Points in the sequence of collectives at which the ranks of a clique show each other which windows they have dropped.

use std::sync::{Mutex, PoisonError};

/// For each rank, the windows that it had dropped when it came to its last two points.
///
/// Two are enough: a rank comes to a point only after all have left the one before the last, because at the last one each
/// has waited for all others to come.
#[derive(Debug)]
pub(crate) struct Points(Box<[Mutex<[Vec<u64>; 2]>]>);

impl Points {
    pub(crate) fn new(size: usize) -> Self {
        Self((0..size).map(|_| Mutex::default()).collect())
    }

    pub(crate) fn show(&self, rank: usize, point: u64, dropped: Vec<u64>) {
        self.0[rank].lock().unwrap_or_else(PoisonError::into_inner)[(point % 2) as usize] = dropped;
    }

    /// Those that all ranks have dropped.
    pub(crate) fn common(&self, point: u64) -> Vec<u64> {
        let shown = |rank: &Mutex<[Vec<u64>; 2]>| {
            rank.lock().unwrap_or_else(PoisonError::into_inner)[(point % 2) as usize].clone()
        };
        let mut ranks = self.0.iter().map(shown);
        let mut common = ranks.next().unwrap_or_default();
        for dropped in ranks {
            common.retain(|number| dropped.contains(number));
        }
        common
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_all_have_dropped() {
        let points = Points::new(3);
        points.show(0, 1, vec![4, 5, 9]);
        points.show(1, 1, vec![5, 9]);
        points.show(2, 1, vec![9, 2, 5]);
        // A rank that is quick.
        points.show(0, 2, vec![4]);
        assert_eq!(points.common(1), [5, 9]);
        points.show(1, 2, vec![]);
        points.show(2, 2, vec![4]);
        assert_eq!(points.common(2), [0u64; 0]);
    }
}

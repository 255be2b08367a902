//! What the ranks of a clique ask for when they split it: each shows the others its colour, so that all know how large the parts are.

use std::sync::{Mutex, PoisonError};

/// For each rank, the colours of its last two splits; `None` for a rank that will be in no part.
///
/// Two are enough: a rank comes to a split only after all have left the one before the last, because at the last one each has waited
/// for all others to come.
#[derive(Debug)]
pub(crate) struct Splits(Box<[Mutex<[Option<usize>; 2]>]>);

impl Splits {
    pub(crate) fn new(size: usize) -> Self {
        Self((0..size).map(|_| Mutex::default()).collect())
    }

    pub(crate) fn show(&self, rank: usize, split: u64, color: Option<usize>) {
        self.0[rank].lock().unwrap_or_else(PoisonError::into_inner)[(split % 2) as usize] = color;
    }

    /// How many ranks have this colour, once all have shown theirs.
    pub(crate) fn size(&self, split: u64, color: usize) -> usize {
        let has = |rank: &&Mutex<[Option<usize>; 2]>| {
            rank.lock().unwrap_or_else(PoisonError::into_inner)[(split % 2) as usize] == Some(color)
        };
        self.0.iter().filter(has).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted() {
        let splits = Splits::new(4);
        for (rank, color) in [Some(0), Some(7), None, Some(7)].into_iter().enumerate() {
            splits.show(rank, 1, color);
        }
        // A rank that is quick.
        splits.show(1, 2, Some(0));
        assert_eq!([0, 7, 1].map(|color| splits.size(1, color)), [1, 2, 0]);
        assert_eq!(splits.size(2, 0), 1);
    }
}

//! What the ranks of a clique ask for when they split it: each shows the others its colour and its key, so that all know who is in which
//! part.

use std::sync::{Mutex, PoisonError};

/// The colour and the key that a rank asks for; `None` for a rank that will be in no part.
type Shown = Option<(usize, usize)>;

/// What each rank has shown in its last two splits.
///
/// Two are enough: a rank comes to a split only after all have left the one before the last, because at the last one each has waited
/// for all others to come.
#[derive(Debug)]
pub(crate) struct Splits(Box<[Mutex<[Shown; 2]>]>);

impl Splits {
    pub(crate) fn new(size: usize) -> Self {
        Self((0..size).map(|_| Mutex::default()).collect())
    }

    pub(crate) fn show(&self, rank: usize, split: u64, shown: Shown) {
        self.0[rank].lock().unwrap_or_else(PoisonError::into_inner)[(split % 2) as usize] = shown;
    }

    /// The ranks that have this colour, in their order there, once all have shown theirs.
    pub(crate) fn members(&self, split: u64, color: usize) -> Vec<usize> {
        let shown = |rank: &Mutex<[Shown; 2]>| {
            rank.lock().unwrap_or_else(PoisonError::into_inner)[(split % 2) as usize].filter(|shown| shown.0 == color)
        };
        let all = self.0.iter().enumerate().filter_map(|(rank, one)| Some((shown(one)?.1, rank)));
        let mut members: Vec<_> = all.collect();
        members.sort_unstable();
        members.into_iter().map(|(_, rank)| rank).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_which_part() {
        let splits = Splits::new(5);
        let shown = [Some((0, 9)), Some((7, 4)), None, Some((7, 3)), Some((7, 4))];
        shown.into_iter().enumerate().for_each(|(rank, shown)| splits.show(rank, 1, shown));
        // A rank that is quick.
        splits.show(1, 2, Some((0, 0)));
        assert_eq!([0, 7, 1].map(|color| splits.members(1, color)), [vec![0], vec![3, 1, 4], vec![]]);
        assert_eq!(splits.members(2, 0), [1]);
    }
}

//! What the ranks of a clique ask for when they split it: each shows the others its colour, its key and its configuration, so that all
//! know who is in which part, and whether those of a part want the same.

use std::sync::{Mutex, PoisonError};

use super::choice::{self, Choice};
use super::dispute::Verdict;

/// What a rank asks for; `None` for a rank that will be in no part.
type Shown = Option<Choice>;

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

    /// What they have shown, each with its rank.
    fn shown(&self, split: u64) -> Vec<(usize, Choice)> {
        let shown = |rank: &Mutex<[Shown; 2]>| {
            rank.lock().unwrap_or_else(PoisonError::into_inner)[(split % 2) as usize].clone()
        };
        self.0.iter().enumerate().filter_map(|(rank, one)| Some((rank, shown(one)?))).collect()
    }

    /// The ranks that have this colour, in their order there, once all have shown theirs.
    pub(crate) fn members(&self, split: u64, color: usize) -> Vec<usize> {
        let all = self.shown(split).into_iter().filter(|(_, choice)| choice.color == color);
        let mut members: Vec<_> = all.map(|(rank, choice)| (choice.key, rank)).collect();
        members.sort_unstable();
        members.into_iter().map(|(_, rank)| rank).collect()
    }

    /// Ranks of one part that have not shown the same configuration, once all have shown theirs.
    pub(crate) fn dispute(&self, split: u64) -> Option<Verdict> {
        let shown = self.shown(split);
        choice::dispute(shown.iter().map(|(rank, choice)| (*rank, choice)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_which_part() {
        let splits = Splits::new(5);
        let choice = |(color, key)| Choice { color, key, terms: None };
        let shown = [Some((0, 9)), Some((7, 4)), None, Some((7, 3)), Some((7, 4))];
        shown.into_iter().enumerate().for_each(|(rank, shown)| splits.show(rank, 1, shown.map(choice)));
        // A rank that is quick.
        splits.show(1, 2, Some(choice((0, 0))));
        assert_eq!([0, 7, 1].map(|color| splits.members(1, color)), [vec![0], vec![3, 1, 4], vec![]]);
        assert_eq!(splits.members(2, 0), [1]);
    }
}

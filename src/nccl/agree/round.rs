//! A round of a checked communicator: what a rank has said that it is about to do, and what others say against that.

use std::cell::Cell;
use std::time::Instant;

use super::dispute::{self, HEARING, Verdict};
use super::past::Exchange;
use super::signature::Signature;
use super::told::Told;

/// A round that a rank has come to.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) number: u64,
    pub(crate) told: Vec<Signature>,
    /// The messages before it; nothing where they do not matter.
    pub(crate) messages: Vec<u64>,
    /// What of it NCCL makes messages of, and that in words.
    pub(crate) exchanges: Vec<(Exchange, String)>,
    /// Since when it is known that others do something else.
    differs: Cell<Option<Instant>>,
}

impl Round {
    pub(crate) fn new(
        number: u64,
        told: Vec<Signature>,
        messages: Vec<u64>,
        exchanges: Vec<(Exchange, String)>,
    ) -> Self {
        Self { number, told, messages, exchanges, differs: Cell::new(None) }
    }

    /// What the rank waits in, in words.
    pub(crate) fn doing(&self) -> String {
        self.told.first().map_or_else(|| "nothing".to_owned(), Signature::describe)
    }

    /// What is not the same on all ranks, of what is known to `own`: once `all` have come, or will not, or after a short wait for the others.
    /// From what all say every rank finds the same.
    pub(crate) fn objection(&self, own: usize, told: &[Option<Told>], all: bool) -> Option<Verdict> {
        let left = told.iter().enumerate().find_map(|(rank, told)| match told {
            Some(Told::Left(how)) => Some((rank, how.clone())),
            _ => None,
        });
        if let Some((rank, got)) = left {
            return Some(Verdict { rank, peer: own, expected: self.doing(), got });
        }
        let of = |rank: usize| match &told[rank] {
            _ if rank == own => Some(&self.told),
            Some(Told::Does { signatures, .. }) => Some(signatures),
            _ => None,
        };
        let (rank, other) = (0..told.len()).find_map(|rank| Some((rank, of(rank).filter(|it| **it != self.told)?)))?;
        let since = self.differs.get().unwrap_or_else(Instant::now);
        self.differs.set(Some(since));
        if !all && since.elapsed() < HEARING {
            return None;
        }
        let judged = (0..self.told.len().max(other.len())).find_map(|at| {
            let said: Vec<_> = (0..told.len()).map(|rank| of(rank)?.get(at).copied()).collect();
            // Nobody knows who came first.
            let (first, expected) = said.iter().enumerate().find_map(|(rank, said)| Some((rank, (*said)?)))?;
            dispute::judge(&said, first, &expected)
        });
        let together = |count: usize| format!("{count} collectives together");
        let (expected, got) = (together(self.told.len()), together(other.len()));
        Some(judged.unwrap_or(Verdict { rank, peer: own, expected, got }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn does(counts: &[u64]) -> Option<Told> {
        let signatures = counts.iter().map(|count| Signature([1, *count, 0, 0, 0, 0])).collect();
        Some(Told::Does { signatures, messages: Vec::new(), shown: Vec::new() })
    }

    /// What rank `own` finds of what all say.
    fn found(own: usize, told: &[Option<Told>], all: bool) -> Option<Verdict> {
        let Some(Told::Does { signatures, .. }) = &told[own] else { panic!("it says something") };
        Round::new(0, signatures.clone(), Vec::new(), Vec::new()).objection(own, told, all)
    }

    #[test]
    fn all_find_the_same() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..1000 {
            let ranks = random.usize(2..7);
            let together = random.usize(1..4);
            let mut counts = vec![vec![100; together]; ranks];
            let wrong = random.usize(..ranks);
            counts[wrong][random.usize(..together)] = 101;
            let told: Vec<_> = counts.iter().map(|counts| does(counts)).collect();
            let verdicts: Vec<_> = (0..ranks).map(|own| found(own, &told, true).unwrap()).collect();
            assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{verdicts:?}");
            // Of two nobody knows which is right.
            assert!(ranks == 2 || verdicts[0].rank == wrong, "{counts:?}: {verdicts:?}");
            let alike = vec![does(&[100]); ranks];
            assert_eq!(found(wrong, &alike, true), None);
        }
    }

    #[test]
    fn the_others_are_waited_for_a_little() {
        let told = [does(&[1]), does(&[2]), None];
        let round = Round::new(0, vec![Signature([1, 1, 0, 0, 0, 0])], Vec::new(), Vec::new());
        assert_eq!(round.objection(0, &told, false), None);
        std::thread::sleep(HEARING);
        assert_eq!(round.objection(0, &told, false).map(|verdict| verdict.rank), Some(1));
        assert!(found(0, &told, true).is_some());
    }

    #[test]
    fn who_leaves_is_told_of_in_place_of_what_it_does() {
        let told = [does(&[5]), Some(Told::Left("nothing: it left".to_owned())), None];
        let verdict = found(0, &told, false).unwrap();
        assert_eq!((verdict.rank, verdict.peer, &*verdict.got), (1, 0, "nothing: it left"));
        assert!(verdict.expected.starts_with("all_reduce of 5 "), "{verdict:?}");
    }

    #[test]
    fn groups_of_other_lengths_differ() {
        let verdict = found(0, &[does(&[5]), does(&[5, 5])], true).unwrap();
        assert_eq!((&*verdict.expected, &*verdict.got), ("1 collectives together", "2 collectives together"));
    }
}

//! Judges one round: compares what the ranks have said in it.

use std::cell::Cell;
use std::time::Instant;

use crate::nccl::validate::ballot::{self, HEARING, Verdict};
use crate::nccl::validate::history;
use crate::nccl::validate::notes::Note;
use crate::nccl::validate::signature::Signature;

/// The state of a round.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RoundState {
    /// All ranks agree. The first collective of the round has this number.
    Agreed(u64),
    /// These ranks have not come yet.
    Missing(Vec<usize>),
}

/// A round of this rank.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) number: u64,
    pub(crate) told: Vec<Signature>,
    /// The messages before it; empty if they do not matter.
    pub(crate) messages: Vec<u64>,
    /// The collectives of it that NCCL makes messages of, and their text.
    pub(crate) exchanges: Vec<(history::Exchange, String)>,
    /// When this rank first found that others do something else.
    differs: Cell<Option<Instant>>,
}

impl Round {
    pub(crate) fn new(
        number: u64,
        told: Vec<Signature>,
        messages: Vec<u64>,
        exchanges: Vec<(history::Exchange, String)>,
    ) -> Self {
        Self { number, told, messages, exchanges, differs: Cell::new(None) }
    }

    /// The operation in which the rank waits, as text.
    pub(crate) fn doing(&self) -> String {
        self.told.first().map_or_else(|| "nothing".to_owned(), Signature::describe)
    }

    /// Returns the difference between the ranks that `own` sees after so many collectives, if there is
    /// one: once `all` ranks have come or will not come, or after a short wait for the others. Every
    /// rank finds the same difference, as it reads the same notes.
    pub(crate) fn objection(&self, (own, passed): (usize, u64), told: &[Option<Note>], all: bool) -> Option<Verdict> {
        let left = told.iter().enumerate().find_map(|(rank, told)| match told {
            Some(Note::Left(how)) => Some((rank, how.clone())),
            _ => None,
        });
        if let Some((rank, how)) = left {
            return Some(Verdict::departed(rank, own, self.doing(), how).at_collective(passed));
        }
        let of = |rank: usize| match &told[rank] {
            _ if rank == own => Some(&self.told),
            Some(Note::Does { signatures, .. }) => Some(signatures),
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
            // It is unknown which rank came first.
            let (first, expected) = said.iter().enumerate().find_map(|(rank, said)| Some((rank, (*said)?)))?;
            Some(ballot::judge(&said, first, &expected)?.at_collective(passed + at as u64))
        });
        let together = |count: usize| match count {
            1 => "1 collective by itself".to_owned(),
            count => format!("{count} collectives together"),
        };
        let (expected, got) = (together(self.told.len()), together(other.len()));
        Some(judged.unwrap_or_else(|| Verdict::new(rank, own, expected, got).at_collective(passed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn does(counts: &[u64]) -> Option<Note> {
        let signatures = counts.iter().map(|count| Signature([1, *count, 0, 0, 0, 0])).collect();
        Some(Note::Does { signatures, messages: Vec::new(), shown: Vec::new(), board: Vec::new() })
    }

    /// Returns the difference that rank `own` finds in the notes of all ranks.
    fn found(own: usize, told: &[Option<Note>], all: bool) -> Option<Verdict> {
        let Some(Note::Does { signatures, .. }) = &told[own] else { panic!("it says something") };
        Round::new(0, signatures.clone(), Vec::new(), Vec::new()).objection((own, 6), told, all)
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
            // Of two ranks that differ, it is unknown which is right.
            assert!(ranks == 2 || verdicts[0].rank == wrong, "{counts:?}: {verdicts:?}");
            let alike = vec![does(&[100]); ranks];
            assert_eq!(found(wrong, &alike, true), None);
        }
    }

    #[test]
    fn the_others_are_waited_for_a_little() {
        let told = [does(&[1]), does(&[2]), None];
        let round = Round::new(0, vec![Signature([1, 1, 0, 0, 0, 0])], Vec::new(), Vec::new());
        assert_eq!(round.objection((0, 0), &told, false), None);
        std::thread::sleep(HEARING);
        assert_eq!(round.objection((0, 0), &told, false).map(|verdict| verdict.rank), Some(1));
        assert!(found(0, &told, true).is_some());
    }

    #[test]
    fn who_leaves_is_told_of_in_place_of_what_it_does() {
        let told = [does(&[5]), Some(Note::Left("nothing: it left".to_owned())), None];
        let verdict = found(0, &told, false).unwrap();
        assert_eq!((verdict.rank, verdict.peer, &*verdict.got), (1, 0, "nothing: it left"));
        assert!(verdict.departed);
        assert!(verdict.expected.starts_with("all_reduce of 5 "), "{verdict:?}");
        assert!(verdict.expected.ends_with(" (collective 7)"), "{verdict:?}");
    }

    #[test]
    fn groups_of_other_lengths_differ() {
        let verdict = found(0, &[does(&[5]), does(&[5, 5])], true).unwrap();
        let told = ("1 collective by itself (collective 7)", "2 collectives together");
        assert_eq!((&*verdict.expected, &*verdict.got), told);
    }

    #[test]
    fn the_collective_that_differs_has_a_number() {
        let verdict = found(0, &[does(&[5, 5]), does(&[5, 6])], true).unwrap();
        assert!(verdict.expected.starts_with("all_reduce of 5 "), "{verdict:?}");
        assert!(verdict.expected.ends_with(" (collective 8)"), "{verdict:?}");
    }
}

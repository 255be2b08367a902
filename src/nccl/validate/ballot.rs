//! Decides which rank is at fault when the ranks of a communicator disagree.
//!
//! The rank that finds a difference comes later than another, but need not be the one that is
//! wrong. So each rank that differs from the first one claims what it has issued, and the ranks
//! that have passed the entry agree with the first one. After a short wait for the others the
//! majority is right; without a majority the first rank is. The first verdict holds, so that all
//! ranks report the same.

use std::sync::OnceLock;
use std::time::Duration;

use super::pair::{End, Word};
use super::signature::Signature;
use crate::error::Error;
use crate::lock::Mutex;
use crate::name::Name;

/// How long is waited for ranks that have not come to the call in question.
pub(crate) const HEARING: Duration = Duration::from_secs(1);

/// A collective that is not what the first rank at that place has issued.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Difference {
    /// Its number in the sequence.
    pub(crate) entry: u64,
    /// The rank that came first, and what it issued.
    pub(crate) first: usize,
    pub(crate) expected: Signature,
    /// Who differs, and what it issued.
    pub(crate) rank: usize,
    pub(crate) got: Signature,
}

/// Which rank is at fault, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The rank that differs.
    pub(crate) rank: usize,
    /// One that it differs from.
    pub(crate) peer: usize,
    /// What `rank` had to issue: what `peer` issued, or the other end of its message.
    pub(crate) expected: String,
    /// What `rank` issued.
    pub(crate) got: String,
    /// Whether `rank` has left in place of issuing something.
    pub(crate) departed: bool,
    /// Whether the numbers of ranks are those of a part.
    pub(crate) in_part: bool,
}

impl Verdict {
    /// `rank` issued `got`, but `peer` issued `expected`.
    pub(crate) fn new(rank: usize, peer: usize, expected: String, got: String) -> Self {
        Self { rank, peer, expected, got, departed: false, in_part: false }
    }

    /// `rank` has left, as `how` says, but `peer` issued `expected`.
    pub(crate) fn departed(rank: usize, peer: usize, expected: String, how: String) -> Self {
        Self { departed: true, ..Self::new(rank, peer, expected, how) }
    }

    /// `rank` came to a message as `mine`, but `peer`, its other end, as `theirs`; `number` counts
    /// the messages between the two in this direction from 0.
    pub(crate) fn of_message(rank: usize, peer: usize, number: u64, theirs: Word, mine: Word) -> Self {
        // Both are told as the end of `rank`, so that only what is wrong differs.
        let expected = theirs.mirrored().against(mine, peer);
        let (from, to) = if mine.said_by(End::Sender) { (rank, peer) } else { (peer, rank) };
        let place = format!(" (message {} from rank {from} to rank {to})", number + 1);
        Self::new(rank, peer, expected + &place, mine.against(theirs, peer))
    }

    /// The same, about the collective that this many came before.
    pub(crate) fn at_collective(mut self, entry: u64) -> Self {
        self.expected.push_str(&format!(" (collective {})", entry + 1));
        self
    }

    pub(crate) fn error(&self, operation: &'static str) -> Error {
        let Self { rank, peer, expected, got, departed, in_part } = self.clone();
        Error::Disagreement { operation, rank, peer, expected, got, departed, in_part }
    }
}

/// Which communicator the ranks are of that compare.
#[derive(Debug, Clone, Default)]
pub(crate) struct RanksOf {
    name: Name,
    /// Whether it was made from another one, in which the ranks have other numbers.
    is_part: bool,
}

impl RanksOf {
    /// A communicator that was not made from another one.
    pub(crate) fn whole(name: Name) -> Self {
        Self { name, is_part: false }
    }

    /// A communicator that was made from another one.
    pub(crate) fn part(name: Name) -> Self {
        Self { name, is_part: true }
    }
}

/// What the ranks of a clique disagree on.
#[derive(Debug, Default)]
pub(crate) struct Ballot {
    of: RanksOf,
    claims: Mutex<Vec<Difference>>,
    verdict: OnceLock<Verdict>,
}

impl Ballot {
    /// A rank says what it has that differs.
    #[cold]
    pub(crate) fn claim(&self, difference: Difference) {
        self.claims.lock().push(difference);
    }

    /// What `rank` has said about `entry`.
    pub(crate) fn said(&self, rank: usize, entry: u64) -> Option<Signature> {
        let claims = self.claims.lock();
        claims.iter().find(|claim| claim.rank == rank && claim.entry == entry).map(|claim| claim.got)
    }

    pub(crate) fn verdict(&self) -> Option<&Verdict> {
        self.verdict.get()
    }

    pub(crate) fn new(of: RanksOf) -> Self {
        Self { of, ..Self::default() }
    }

    /// Names `rank` in a sentence.
    pub(crate) fn rank_in_words(&self, rank: usize) -> String {
        self.of.name.rank(rank)
    }

    /// The one that holds: the first there was.
    pub(crate) fn decide(&self, mut verdict: Verdict) -> &Verdict {
        self.verdict.get_or_init(|| {
            let RanksOf { name, is_part } = &self.of;
            if let Some(name) = name.given() {
                verdict.got.push_str(&format!(" (ranks of {name})"));
            }
            verdict.in_part |= is_part;
            verdict
        })
    }
}

/// Judges by what each rank issued, as far as known; `first` came first, and `expected` is what it
/// issued.
pub(crate) fn judge(said: &[Option<Signature>], first: usize, expected: &Signature) -> Option<Verdict> {
    let votes = |signature: &Signature| said.iter().flatten().filter(|one| *one == signature).count();
    let known = || said.iter().enumerate().filter_map(|(rank, one)| one.as_ref().map(|one| (rank, one)));
    // Of equal numbers the first counts: `expected`, then the lower rank.
    let mut right = (expected, votes(expected));
    for (_, one) in known() {
        if votes(one) > right.1 {
            right = (one, votes(one));
        }
    }
    let right = right.0;
    let (rank, wrong) = known().find(|(_, one)| *one != right)?;
    let peer = if right == expected { first } else { known().find(|(_, one)| *one == right)?.0 };
    Some(Verdict::new(rank, peer, right.against(wrong), wrong.against(right)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::ElementKind;
    use crate::nccl::validate::pair::{Manner, Message};

    /// A clique whose ranks issue what `counts` says, in which rank `first` comes first.
    fn judged(counts: &[Option<u64>], first: usize) -> Option<Verdict> {
        let said: Vec<_> = counts.iter().map(|count| count.map(|count| Signature([1, count, 0, 0, 0, 0]))).collect();
        judge(&said, first, &said[first].unwrap())
    }

    #[test]
    fn the_minority_is_at_fault_whoever_comes_first() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..1000 {
            let ranks = random.usize(3..9);
            let mut wrong: Vec<usize> = (0..ranks).collect();
            random.shuffle(&mut wrong);
            wrong.truncate(random.usize(1..=(ranks - 1) / 2));
            let same = random.bool();
            let counts: Vec<_> = (0..ranks)
                .map(|rank| match wrong.contains(&rank) {
                    true => Some(if same { 99 } else { 200 + rank as u64 }),
                    false => Some(100),
                })
                .collect();
            let first = random.usize(..ranks);
            let verdict = judged(&counts, first).unwrap();
            assert_eq!(verdict.rank, *wrong.iter().min().unwrap(), "{counts:?}, {first} first");
            assert_eq!(counts[verdict.peer], Some(100), "{counts:?}, {first} first");
            assert!(verdict.expected.contains("100 ") && !verdict.got.contains("100 "));
        }
    }

    #[test]
    fn the_later_one_is_at_fault_where_there_is_no_majority() {
        for first in 0..2 {
            let verdict = judged(&[Some(8), Some(9)], first).unwrap();
            assert_eq!((verdict.rank, verdict.peer), (1 - first, first));
        }
        let verdict = judged(&[None, Some(8), None, Some(9)], 3).unwrap();
        assert_eq!((verdict.rank, verdict.peer), (1, 3));
        let verdict = judged(&[Some(8), Some(9), Some(9), Some(8)], 1).unwrap();
        assert_eq!((verdict.rank, verdict.peer), (0, 1));
    }

    #[test]
    fn grouping_is_named_where_it_differs() {
        let of = |group: u64, count| Signature([1 | group << 40, count, 0, 0, 0, 0]);
        let verdict = judge(&[Some(of(2, 8)), Some(of(1, 8))], 0, &of(2, 8)).unwrap();
        assert!(verdict.expected.ends_with(", in a group of 2 collectives"), "{verdict:?}");
        assert!(verdict.got.ends_with(", by itself"), "{verdict:?}");
        let verdict = judge(&[Some(of(2, 8)), Some(of(2, 9))], 0, &of(2, 8)).unwrap();
        assert!(!verdict.expected.contains("group") && !verdict.got.contains("group"), "{verdict:?}");
    }

    #[test]
    fn ranks_of_a_part_are_told_as_such() {
        let (whole, tp) = (Name::default(), Name::new("test", "tp").unwrap());
        let (parts, all) = ([whole.part(3), tp.clone()].map(RanksOf::part), [whole, tp].map(RanksOf::whole));
        let notes =
            [Some("(ranks of \"world/split(color=3)\")"), Some("(ranks of \"tp\")"), None, Some("(ranks of \"tp\")")];
        for (at, (of, note)) in parts.into_iter().chain(all).zip(notes).enumerate() {
            let error = Ballot::new(of).decide(judged(&[Some(8), Some(9)], 0).unwrap()).error("test");
            let Error::Disagreement { in_part, .. } = error else { panic!("{error:?}") };
            let text = error.to_string();
            assert!(note.map_or(!text.contains("ranks of"), |note| text.ends_with(note)), "{at}: {text}");
            assert_eq!(in_part, at < 2);
        }
    }

    /// What a rank had to issue and what it issued differ in what is wrong alone, whichever end it is.
    #[test]
    fn both_ends_of_a_message_are_told_as_one() {
        let word = |end, count| {
            let manner = Manner::Plain;
            Word::new(end, Message { element: ElementKind::F32.into(), count, window: false, exchanges: 0, manner })
        };
        for (end, expected, got) in [
            (End::Receiver, "recv of 5 f32 from rank 3 (message 3 from rank 3 to rank 7)", "recv of 4 f32 from rank 3"),
            (End::Sender, "send of 5 f32 to rank 3 (message 3 from rank 7 to rank 3)", "send of 4 f32 to rank 3"),
        ] {
            let verdict = Verdict::of_message(7, 3, 2, word(end.other(), 5), word(end, 4));
            assert_eq!((verdict.rank, verdict.peer), (7, 3));
            assert_eq!((&*verdict.expected, &*verdict.got), (expected, got));
        }
    }

    #[test]
    fn the_first_verdict_stays() {
        let ballot = Ballot::default();
        let one = judged(&[Some(8), Some(9)], 0).unwrap();
        let other = judged(&[Some(8), Some(9)], 1).unwrap();
        assert_eq!(ballot.decide(one.clone()), &one);
        assert_eq!(ballot.decide(other), &one);
    }
}

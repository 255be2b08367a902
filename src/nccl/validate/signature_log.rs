//! The signatures of a clique: its ranks compare what they are about to launch.
//!
//! If a peer passes another count, NCCL can write beyond a buffer of this rank. So a rank launches
//! an operation only if it equals what the first rank at that place of the sequence has written
//! down. No rank waits for another one: the first to arrive publishes its operation and goes on,
//! and later ones compare. A rank that differs does not launch, so no two ranks ever run operations
//! that do not match. The operation of the ranks that came before can then never complete, and the
//! whole clique is aborted.
//!
//! All ranks compare their collectives in one [`Sequence`]. The sender and the receiver of a
//! message compare it in a [`Pair`], of which there is one for each ordered pair of ranks. The cost
//! is the time that a cache line takes from one core to another, so lines are requested before they
//! are needed, where that is known.

use super::ballot;
use super::ballot::{Ballot, Difference, RanksOf, Verdict};
use super::history::History;
use super::meeting::Meeting;
use super::pair::{End, Message, Met, Pair, Word};
use super::presence::Presence;
use super::sequence::{Sequence, Turn};
use super::signature::Signature;
use crate::deadline::{Deadline, backoff};
use crate::error::Error;
use crate::hint::Apart;

/// What the ranks of a clique share.
#[derive(Debug)]
pub(crate) struct SignatureLog {
    size: usize,
    collectives: Sequence,
    pairs: Box<[Pair]>,
    histories: Box<[Apart<History>]>,
    meeting: Meeting,
    presence: Presence,
    ballot: Ballot,
}

impl SignatureLog {
    pub(crate) fn new(size: usize, of: RanksOf) -> Self {
        Self {
            size,
            collectives: Sequence::new(size),
            pairs: (0..size * size).map(|_| Pair::new()).collect(),
            histories: (0..size).map(|_| Apart(History::new(size))).collect(),
            meeting: Meeting::new(size),
            presence: Presence::new(size),
            ballot: Ballot::new(of),
        }
    }

    pub(crate) fn collectives(&self) -> &Sequence {
        &self.collectives
    }

    /// What `rank` has done.
    #[inline]
    pub(crate) fn history(&self, rank: usize) -> &History {
        &self.histories[rank].0
    }

    pub(crate) fn meeting(&self) -> &Meeting {
        &self.meeting
    }

    /// Who may still come.
    pub(crate) fn presence(&self) -> &Presence {
        &self.presence
    }

    /// The next collective of `rank`.
    #[inline]
    pub(crate) fn collective(&self, rank: usize, signature: &Signature) -> Turn {
        self.collectives.step(rank, signature)
    }

    /// `rank` has launched a collective: a hint.
    #[inline]
    pub(crate) fn look_ahead(&self, rank: usize) {
        self.collectives.look_ahead(rank);
    }

    /// The next message between `rank`, which is one end of it, and `peer`, the other; or what the
    /// other end said that is something else.
    #[inline]
    pub(crate) fn message(&self, (rank, end): (usize, End), peer: usize, message: Message) -> Result<Met, Word> {
        self.pair(rank, end, peer).agree(end, message)
    }

    /// A message between `rank` and `peer` is about to come: a hint.
    #[inline]
    pub(crate) fn expect_message(&self, (rank, end): (usize, End), peer: usize) {
        self.pair(rank, end, peer).expect(end);
    }

    /// The messages between `rank`, which is `end` of them, and `peer`.
    #[inline]
    pub(crate) fn pair(&self, rank: usize, end: End, peer: usize) -> &Pair {
        match end {
            End::Sender => &self.pairs[rank * self.size + peer],
            End::Receiver => &self.pairs[peer * self.size + rank],
        }
    }

    /// What sets the collective that `rank` comes to next, which is `got`, apart from the first
    /// rank's. The other ranks know from now on.
    #[cold]
    pub(crate) fn differ(&self, rank: usize, got: &Signature) -> Difference {
        let (entry, first, expected) = self.collectives.next(rank);
        let difference = Difference { entry, first, expected, rank, got: *got };
        self.ballot.claim(difference);
        difference
    }

    /// Who is at fault for this difference, or for an earlier one. Waits a little for ranks that
    /// have not come to the collective; `stop` says when that is in vain.
    #[cold]
    pub(crate) fn verdict_on(
        &self,
        difference: &Difference,
        stop: impl Fn() -> Option<Error>,
    ) -> Result<&Verdict, Error> {
        let Difference { entry, first, expected, rank, got } = difference;
        let deadline = Deadline::after(ballot::HEARING);
        let mut round = 0;
        loop {
            if let Some(verdict) = self.ballot.verdict() {
                return Ok(verdict);
            }
            let said: Vec<_> = (0..self.size)
                .map(|other| match self.collectives.passed(other) > *entry {
                    true => Some(*expected),
                    false => self.ballot.said(other, *entry),
                })
                .collect();
            if said.iter().all(Option::is_some) || deadline.expired() {
                // The one that asks differs from the first, so there is somebody at fault.
                let verdict = ballot::judge(&said, *first, expected)
                    .unwrap_or_else(|| Verdict::new(*rank, *first, expected.against(got), got.against(expected)));
                return Ok(self.ballot.decide(verdict.at_collective(*entry)));
            }
            if let Some(error) = stop() {
                return Err(error);
            }
            backoff(round);
            round += 1;
        }
    }

    /// The verdict that holds, after this one was found: the first one.
    #[cold]
    pub(crate) fn decide(&self, verdict: Verdict) -> &Verdict {
        self.ballot.decide(verdict)
    }

    /// The same for the next message of which `rank` is `end` and `peer` the other end, which came
    /// first and said `theirs`.
    #[cold]
    pub(crate) fn verdict_on_message(
        &self,
        (rank, end): (usize, End),
        peer: usize,
        theirs: Word,
        message: Message,
    ) -> &Verdict {
        let number = self.pair(rank, end, peer).passed(end);
        self.decide(Verdict::of_message(rank, peer, number, theirs, Word::new(end, message)))
    }

    /// The last collective of `rank`, in words, if it is still known.
    pub(crate) fn last_of(&self, rank: usize) -> Option<String> {
        let last = self.collectives.passed(rank).checked_sub(1)?;
        self.collectives.signature(last).map(|last| last.describe())
    }

    /// Where `rank` is, in words.
    pub(crate) fn whereabouts(&self, rank: usize) -> String {
        whereabouts(rank, self.collectives.passed(rank), || self.last_of(rank))
    }
}

/// Where a rank is, in words, that has come to so many collectives; `last` is the last of them, if
/// it is still known.
pub(crate) fn whereabouts(rank: usize, passed: u64, last: impl FnOnce() -> Option<String>) -> String {
    match passed {
        0 => format!("rank {rank} has come to no collective"),
        passed => {
            let last = last().unwrap_or_else(|| "long ago".to_owned());
            let s = if passed == 1 { "" } else { "s" };
            format!("rank {rank} has come to {passed} collective{s}, the last was {last}")
        }
    }
}

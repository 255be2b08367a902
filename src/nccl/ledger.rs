//! The ledger of a clique: ranks of one process compare what they are about to launch.
//!
//! A peer that passes another count can make NCCL write beyond a buffer of this rank, so an operation is launched only if
//! it equals what the first rank at that place in the sequence wrote down. Nobody waits for anybody: the first to arrive
//! publishes and goes on, later ones compare. One that differs does not launch, so no two ranks ever run operations that
//! do not match; the operation of those that came before can then never complete, and the whole clique is aborted.
//!
//! There is one [`Track`] for collectives, with all ranks on it, and a [`Pair`] for each ordered pair of ranks, where the
//! sender and the receiver of a message meet. What all this costs is the time that a cache line takes from one core to another; so
//! lines are asked for before they are needed, where that is known.

use super::pair::{End, Pair};
use super::refusal::Refusal;
use super::signature::Signature;
use super::track::Track;
use crate::deadline::{Deadline, backoff};
use crate::element::ElementKind;
use crate::error::{Error, Result};

/// What the ranks of a clique share.
#[derive(Debug)]
pub(crate) struct Ledger {
    size: usize,
    collectives: Track,
    pairs: Box<[Pair]>,
}

impl Ledger {
    pub(crate) fn new(size: usize) -> Self {
        Self { size, collectives: Track::new(size), pairs: (0..size * size).map(|_| Pair::new()).collect() }
    }

    /// The next collective of `rank`; its number in the sequence.
    #[inline]
    pub(crate) fn collective(
        &self,
        rank: usize,
        signature: &Signature,
        wait: &mut dyn FnMut(u32) -> Result<()>,
    ) -> Result<u64, Refusal> {
        self.collectives.agree(rank, signature, wait)
    }

    /// `rank` has launched a collective: a hint.
    #[inline]
    pub(crate) fn look_ahead(&self, rank: usize) {
        self.collectives.look_ahead(rank);
    }

    /// The next message between `rank`, which is one end of it, and `peer`, the other; they may be the same.
    #[inline]
    pub(crate) fn message(
        &self,
        (rank, end): (usize, End),
        peer: usize,
        what: (ElementKind, usize),
        wait: &mut dyn FnMut(u32) -> Result<()>,
    ) -> Result<(), Refusal> {
        self.pair(rank, end, peer).agree(end, peer, what, wait)
    }

    /// A message between `rank` and `peer` is about to come: a hint.
    #[inline]
    pub(crate) fn expect_message(&self, (rank, end): (usize, End), peer: usize) {
        self.pair(rank, end, peer).expect(end);
    }

    #[inline]
    fn pair(&self, rank: usize, end: End, peer: usize) -> &Pair {
        match end {
            End::Sender => &self.pairs[rank * self.size + peer],
            End::Receiver => &self.pairs[peer * self.size + rank],
        }
    }

    /// Waits until all ranks have come to collective number `entry`: for calls that block inside NCCL until all are there.
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    pub(crate) fn rendezvous(
        &self,
        operation: &'static str,
        entry: u64,
        deadline: &Deadline,
        stop: impl Fn() -> Option<Error>,
    ) -> Result<()> {
        let mut round = 0;
        while self.collectives.missing(entry).next().is_some() {
            if let Some(error) = stop() {
                return Err(error);
            }
            if deadline.expired() {
                let missing: Vec<String> = self.collectives.missing(entry).map(|rank| rank.to_string()).collect();
                return Err(deadline.error(operation, format!("waiting for rank {}", missing.join(", "))));
            }
            backoff(round);
            round += 1;
        }
        Ok(())
    }
}

/// What a rank does in the tests of both parts, where it would have to wait.
#[cfg(test)]
pub(super) mod waits {
    use crate::deadline::backoff;
    use crate::error::{Error, Result};

    pub(crate) fn patient(round: u32) -> Result<()> {
        backoff(round);
        Ok(())
    }

    pub(crate) fn impatient(_: u32) -> Result<()> {
        Err(Error::InvalidUsage { operation: "test", reason: "it waits".into() })
    }
}

//! The ledger of a clique: ranks of one process compare what they are about to launch.
//!
//! A peer that passes another count can make NCCL write beyond a buffer of this rank, so an operation is launched only if
//! it equals what the first rank at that place in the sequence wrote down. Nobody waits for anybody: the first to arrive
//! publishes and goes on, later ones compare. One that differs does not launch, so no two ranks ever run operations that
//! do not match; the operation of those that came before can then never complete, and the whole clique is aborted.
//!
//! There is one track for collectives, with all ranks on it, and one for each ordered pair of ranks, on which the sender
//! and the receiver meet.

use std::sync::atomic::{AtomicU64, Ordering};

use super::signature::Signature;
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};

/// Entries of a track. A rank that is this far ahead of another one waits for it: further than the operations that may be
/// in flight, so that this happens only to a rank that needs nothing of the others, such as the root of broadcasts.
const SLOTS: u64 = 512;

#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    /// Twice the number of the entry plus 1 while it is written, plus 2 once it is there; 0 at the start.
    state: AtomicU64,
    /// The rank that wrote it.
    author: AtomicU64,
    words: [AtomicU64; 6],
}

impl Slot {
    /// Whether this is what was written. Word by word: a comparison of arrays would be a call.
    #[inline]
    fn holds(&self, signature: &Signature) -> bool {
        let differences = self.words.iter().zip(signature.0).map(|(word, value)| word.load(Ordering::Relaxed) ^ value);
        differences.fold(0, |all, difference| all | difference) == 0
    }

    /// Moves what was written from this core's cache to the one that all share, where the other ranks find it sooner.
    #[inline]
    fn hand_on(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint that changes neither memory nor registers; a processor without it takes it for a no-op.
        unsafe {
            std::arch::asm!("cldemote [{}]", in(reg) &raw const *self, options(nostack, preserves_flags));
        }
    }

    #[cold]
    fn refusal(&self) -> Refusal {
        let expected = Signature(std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed)));
        Refusal::Disagreement { peer: self.author.load(Ordering::Relaxed) as usize, expected }
    }
}

/// A sequence of operations that some ranks take part in.
#[derive(Debug)]
struct Track {
    slots: Box<[Slot]>,
    /// How many entries each participant has passed; each is written by one rank, under the lock of its communicator.
    passed: Box<[Passed]>,
}

/// How far one participant is. Written by one rank, under the lock of its communicator; the line is its own, so that
/// going on costs the others nothing.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Passed {
    /// Entries that it has passed.
    entries: AtomicU64,
    /// Entries that all participants had passed when it looked last.
    by_all: AtomicU64,
}

/// Why an operation must not be launched.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Another rank wrote down something else.
    Disagreement {
        /// The rank that wrote it.
        peer: usize,
        /// What it wrote.
        expected: Signature,
    },
    /// A rank did not keep up within the deadline, or the communicator has ended.
    Behind(Error),
}

impl Track {
    fn new(participants: usize) -> Self {
        let slot = || Slot { state: AtomicU64::new(0), author: AtomicU64::new(0), words: Default::default() };
        Self {
            slots: (0..SLOTS).map(|_| slot()).collect(),
            passed: (0..participants).map(|_| Passed::default()).collect(),
        }
    }

    /// Takes part in the next entry of `participant`, which is `rank` of the clique.
    #[inline]
    fn agree(
        &self,
        participant: usize,
        rank: usize,
        signature: &Signature,
        wait: &mut dyn FnMut(u32) -> Result<()>,
    ) -> Result<u64, Refusal> {
        let own = &self.passed[participant];
        let entry = own.entries.load(Ordering::Relaxed);
        let slot = &self.slots[(entry % SLOTS) as usize];
        let (writing, written) = (2 * entry + 1, 2 * entry + 2);
        let mut round = 0;
        let author = loop {
            let state = slot.state.load(Ordering::Acquire);
            if state == written {
                break false;
            }
            if state < writing && (entry < SLOTS || self.passed_by_all(own, entry - SLOTS)) {
                // Every participant has left the entry that this slot held before, so it may be written over.
                if slot.state.compare_exchange(state, writing, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    for (word, value) in slot.words.iter().zip(signature.0) {
                        word.store(value, Ordering::Relaxed);
                    }
                    slot.author.store(rank as u64, Ordering::Relaxed);
                    slot.state.store(written, Ordering::Release);
                    if self.passed.len() > 1 {
                        slot.hand_on();
                    }
                    break true;
                }
                continue;
            }
            wait(round).map_err(Refusal::Behind)?;
            round += 1;
        };
        if !author && !slot.holds(signature) {
            return Err(slot.refusal());
        }
        own.entries.store(entry + 1, Ordering::Release);
        Ok(entry)
    }

    /// Whether all participants have passed `entry`. Looks at the others only where what was seen last is not enough.
    #[inline]
    fn passed_by_all(&self, own: &Passed, entry: u64) -> bool {
        if own.by_all.load(Ordering::Relaxed) > entry {
            return true;
        }
        let slowest = self.slowest();
        own.by_all.store(slowest, Ordering::Relaxed);
        slowest > entry
    }

    fn slowest(&self) -> u64 {
        self.passed.iter().map(|passed| passed.entries.load(Ordering::Acquire)).min().unwrap_or(0)
    }
}

/// All tracks of a clique.
#[derive(Debug)]
pub(crate) struct Ledger {
    size: usize,
    collectives: Track,
    pairs: Box<[Track]>,
}

impl Ledger {
    pub(crate) fn new(size: usize) -> Self {
        Self { size, collectives: Track::new(size), pairs: (0..size * size).map(|_| Track::new(2)).collect() }
    }

    /// The next collective of `rank`; its number in the sequence.
    #[inline]
    pub(crate) fn collective(
        &self,
        rank: usize,
        signature: &Signature,
        wait: &mut dyn FnMut(u32) -> Result<()>,
    ) -> Result<u64, Refusal> {
        self.collectives.agree(rank, rank, signature, wait)
    }

    /// The next message from `source` to `target`, of which `rank` is one; a rank may be both.
    #[inline]
    pub(crate) fn message(
        &self,
        source: usize,
        target: usize,
        sending: bool,
        signature: &Signature,
        wait: &mut dyn FnMut(u32) -> Result<()>,
    ) -> Result<u64, Refusal> {
        let rank = if sending { source } else { target };
        self.pairs[source * self.size + target].agree(usize::from(!sending), rank, signature, wait)
    }

    /// Waits until all ranks have come to collective number `entry`: for calls that block inside NCCL until all are there.
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    pub(crate) fn rendezvous(&self, entry: u64, deadline: &Deadline, stop: impl Fn() -> Option<Error>) -> Result<()> {
        let mut round = 0;
        while self.collectives.slowest() <= entry {
            if let Some(error) = stop() {
                return Err(error);
            }
            if deadline.expired() {
                let missing: Vec<String> = (0..self.size)
                    .filter(|&rank| self.collectives.passed[rank].entries.load(Ordering::Acquire) <= entry)
                    .map(|rank| rank.to_string())
                    .collect();
                return Err(deadline.error("alloc", format!("waiting for rank {}", missing.join(", "))));
            }
            backoff(round);
            round += 1;
        }
        Ok(())
    }
}

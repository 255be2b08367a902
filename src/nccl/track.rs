//! The collectives of a clique: a sequence of entries, each written by the rank that comes first and compared by the others.

use std::sync::atomic::{AtomicU64, Ordering};

use super::hint::{self, Apart};
use super::refusal::Refusal;
use super::signature::Signature;
use crate::cuda::MOST_LAUNCHES;
use crate::error::Result;

/// Entries that are kept. A rank that is this far ahead of another one waits for it: as many as operations may be in flight, so
/// that this happens only to a rank that needs nothing of the others, such as the root of broadcasts.
const SLOTS: u64 = MOST_LAUNCHES;

/// Looks at an entry that another rank is writing, before the deadline is asked for: eight stores take no longer.
const WRITING: u32 = 100;

#[derive(Debug, Default)]
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

    #[cold]
    fn refusal(&self) -> Refusal {
        let expected = Signature(std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed)));
        Refusal::Disagreement { peer: self.author.load(Ordering::Relaxed) as usize, expected }
    }
}

/// The sequence of the collectives of all ranks.
#[derive(Debug)]
pub(crate) struct Track {
    slots: Box<[Apart<Slot>]>,
    /// How far each rank is.
    passed: Box<[Apart<Passed>]>,
}

/// How far one rank is. Written by that rank only, under the lock of its communicator; its lines are its own, so that going
/// on costs the others nothing.
#[derive(Debug, Default)]
struct Passed {
    /// Entries that it has passed.
    entries: AtomicU64,
    /// Entries that all ranks had passed when it looked last.
    by_all: AtomicU64,
}

impl Track {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Apart::default()).collect(),
            passed: (0..size).map(|_| Apart::default()).collect(),
        }
    }

    #[inline]
    fn slot(&self, entry: u64) -> &Slot {
        &self.slots[(entry % SLOTS) as usize].0
    }

    /// Says that `rank` is done with its last entry, and will come to the next one some time.
    #[inline]
    pub(crate) fn look_ahead(&self, rank: usize) {
        hint::soon_read(self.slot(self.passed[rank].0.entries.load(Ordering::Relaxed)));
    }

    /// Takes part in the next entry as `rank`; its number.
    #[inline]
    pub(crate) fn agree(
        &self,
        rank: usize,
        signature: &Signature,
        wait: &mut dyn FnMut(u32) -> Result<()>,
    ) -> Result<u64, Refusal> {
        let own = &self.passed[rank].0;
        let entry = own.entries.load(Ordering::Relaxed);
        let slot = self.slot(entry);
        let (writing, written) = (2 * entry + 1, 2 * entry + 2);
        let mut round = 0;
        let author = loop {
            let state = slot.state.load(Ordering::Acquire);
            if state == written {
                break false;
            }
            if state < writing && (entry < SLOTS || self.passed_by_all(own, entry - SLOTS)) {
                // Every rank has left the entry that this slot held before, so it may be written over.
                if slot.state.compare_exchange(state, writing, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    for (word, value) in slot.words.iter().zip(signature.0) {
                        word.store(value, Ordering::Relaxed);
                    }
                    slot.author.store(rank as u64, Ordering::Relaxed);
                    slot.state.store(written, Ordering::Release);
                    // Who was first is likely to be first again.
                    hint::soon_written(self.slot(entry + 1));
                    break true;
                }
                continue;
            }
            if state == writing && round < WRITING {
                std::hint::spin_loop();
            } else {
                wait(round.saturating_sub(WRITING)).map_err(Refusal::Behind)?;
            }
            round += 1;
        };
        if !author && !slot.holds(signature) {
            return Err(slot.refusal());
        }
        own.entries.store(entry + 1, Ordering::Release);
        Ok(entry)
    }

    /// Whether all ranks have passed `entry`. Looks at the others only where what was seen last is not enough.
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
        self.passed.iter().map(|passed| passed.0.entries.load(Ordering::Acquire)).min().unwrap_or(0)
    }

    /// The ranks that have not passed `entry`.
    pub(crate) fn missing(&self, entry: u64) -> impl Iterator<Item = usize> {
        let late = move |passed: &Apart<Passed>| passed.0.entries.load(Ordering::Acquire) <= entry;
        self.passed.iter().enumerate().filter_map(move |(rank, passed)| late(passed).then_some(rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nccl::ledger::waits::{impatient, patient};

    fn signatures(count: usize) -> Vec<Signature> {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| Signature(std::array::from_fn(|_| random.u64(..)))).collect()
    }

    #[test]
    fn all_ranks_pass_the_same_entries_whoever_is_ahead() {
        let all = signatures(10_000);
        for ranks in 1..=4 {
            let track = Track::new(ranks);
            std::thread::scope(|scope| {
                for rank in 0..ranks {
                    let (track, all) = (&track, &all);
                    scope.spawn(move || {
                        let mut random = fastrand::Rng::with_seed(rank as u64);
                        for (number, signature) in all.iter().enumerate() {
                            if random.u32(..100) == 0 {
                                std::thread::yield_now();
                            }
                            assert_eq!(track.agree(rank, signature, &mut patient).unwrap(), number as u64);
                            track.look_ahead(rank);
                        }
                    });
                }
            });
            assert_eq!(track.missing(all.len() as u64 - 1).count(), 0);
        }
    }

    #[test]
    fn whoever_differs_from_the_first_is_refused_in_every_word() {
        for word in 0..6 {
            let track = Track::new(3);
            let right = signatures(1)[0];
            let mut wrong = right;
            wrong.0[word] ^= 1 << 40;
            track.agree(2, &right, &mut impatient).unwrap();
            match track.agree(0, &wrong, &mut impatient) {
                Err(Refusal::Disagreement { peer: 2, expected }) => assert_eq!(expected, right),
                got => panic!("{got:?}"),
            }
            assert_eq!(track.agree(1, &right, &mut impatient).unwrap(), 0);
            assert_eq!(track.missing(0).collect::<Vec<_>>(), [0]);
        }
    }

    #[test]
    fn a_rank_waits_when_it_is_too_far_ahead_of_any() {
        let all = signatures(SLOTS as usize + 1);
        let track = Track::new(3);
        let (last, before) = all.split_last().unwrap();
        for signature in before {
            track.agree(0, signature, &mut impatient).unwrap();
        }
        track.agree(1, &all[0], &mut impatient).unwrap();
        assert!(matches!(track.agree(0, last, &mut impatient), Err(Refusal::Behind(_))));
        track.agree(2, &all[0], &mut impatient).unwrap();
        track.agree(0, last, &mut impatient).unwrap();
        assert_eq!(track.agree(1, &all[1], &mut impatient).unwrap(), 1);
    }
}

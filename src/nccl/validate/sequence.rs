//! The sequence of a clique's collectives: the rank that comes first writes an entry, and the
//! others compare it.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::signature::Signature;
use crate::hint::{self, Apart};

/// Entries that are kept. A rank that is this far ahead of another one waits for it: more than may
/// be in flight on a stream, so that this happens only to a rank that needs nothing of the others,
/// such as the root of broadcasts, and in large groups.
const SLOTS: u64 = 512;

/// How a rank fares that takes part in an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It has passed this entry.
    Passed(u64),
    /// It has to wait: another rank is writing the entry just now, or is too far behind.
    Wait,
    /// Another rank wrote something else into the entry: see [`Sequence::next`].
    Differs,
}

#[derive(Debug, Default)]
struct Slot {
    /// Twice the number of the entry plus 1 while it is written, plus 2 once it is there; 0 at the
    /// start.
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
    fn signature(&self) -> Signature {
        Signature(std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed)))
    }
}

/// The sequence of the collectives of all ranks.
#[derive(Debug)]
pub(crate) struct Sequence {
    slots: Box<[Apart<Slot>]>,
    /// How far each rank is.
    passed: Box<[Apart<Passed>]>,
}

/// How far one rank is. Written by that rank only, under the lock of its communicator; its lines
/// are its own, so that going on costs the others nothing.
#[derive(Debug, Default)]
struct Passed {
    /// Entries that it has passed.
    entries: AtomicU64,
    /// Entries that all ranks had passed when it looked last.
    by_all: AtomicU64,
}

impl Sequence {
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

    /// A hint for the caches: `rank` is done with its last entry, and will read the next one.
    #[inline]
    pub(crate) fn look_ahead(&self, rank: usize) {
        hint::soon_read(self.slot(self.passed[rank].0.entries.load(Ordering::Relaxed)));
    }

    /// Takes part in the next entry as `rank`.
    #[inline]
    pub(crate) fn step(&self, rank: usize, signature: &Signature) -> Turn {
        let own = &self.passed[rank].0;
        let entry = own.entries.load(Ordering::Relaxed);
        let slot = self.slot(entry);
        let (writing, written) = (2 * entry + 1, 2 * entry + 2);
        let state = slot.state.load(Ordering::Acquire);
        if state == written {
            if !slot.holds(signature) {
                return Turn::Differs;
            }
        } else {
            // Where every rank has left the entry that this slot held before, it may be written over.
            let free = state < writing && (entry < SLOTS || self.passed_by_all(own, entry - SLOTS));
            if !free || slot.state.compare_exchange(state, writing, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                return Turn::Wait;
            }
            for (word, value) in slot.words.iter().zip(signature.0) {
                word.store(value, Ordering::Relaxed);
            }
            slot.author.store(rank as u64, Ordering::Relaxed);
            slot.state.store(written, Ordering::Release);
            // Who was first is likely to be first again.
            hint::soon_written(self.slot(entry + 1));
        }
        own.entries.store(entry + 1, Ordering::Release);
        Turn::Passed(entry)
    }

    /// Whether all ranks have passed `entry`. Looks at the others only where what was seen last is
    /// not enough.
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

    /// The entry that `rank` comes to next, which another rank has written: its number, that rank,
    /// and what stands there.
    pub(crate) fn next(&self, rank: usize) -> (u64, usize, Signature) {
        let entry = self.passed(rank);
        let slot = self.slot(entry);
        (entry, slot.author.load(Ordering::Relaxed) as usize, slot.signature())
    }

    /// How many entries `rank` has passed.
    pub(crate) fn passed(&self, rank: usize) -> u64 {
        self.passed[rank].0.entries.load(Ordering::Acquire)
    }

    /// The ranks that have not passed `entry`.
    pub(crate) fn missing(&self, entry: u64) -> impl Iterator<Item = usize> {
        (0..self.passed.len()).filter(move |&rank| self.passed(rank) <= entry)
    }

    /// The ranks that `rank` waits for before it may write its next entry.
    pub(crate) fn behind(&self, rank: usize) -> impl Iterator<Item = usize> {
        let next = self.passed(rank);
        (0..self.passed.len()).filter(move |&other| next >= SLOTS && self.passed(other) <= next - SLOTS)
    }

    /// What stands in `entry`, as long as nobody has written over it.
    pub(crate) fn signature(&self, entry: u64) -> Option<Signature> {
        let slot = self.slot(entry);
        let written = 2 * entry + 2;
        let before = slot.state.load(Ordering::Acquire);
        let signature = slot.signature();
        fence(Ordering::Acquire);
        (before == written && slot.state.load(Ordering::Relaxed) == written).then_some(signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::backoff;

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
            let sequence = Sequence::new(ranks);
            std::thread::scope(|scope| {
                for rank in 0..ranks {
                    let (sequence, all) = (&sequence, &all);
                    scope.spawn(move || {
                        let mut random = fastrand::Rng::with_seed(rank as u64);
                        for (number, signature) in all.iter().enumerate() {
                            if random.u32(..100) == 0 {
                                std::thread::yield_now();
                            }
                            let mut round = 0;
                            while sequence.step(rank, signature) == Turn::Wait {
                                backoff(round);
                                round += 1;
                            }
                            assert_eq!(sequence.passed(rank), number as u64 + 1);
                            sequence.look_ahead(rank);
                        }
                    });
                }
            });
            assert_eq!(sequence.missing(all.len() as u64 - 1).count(), 0);
        }
    }

    #[test]
    fn whoever_differs_from_the_first_is_told_in_every_word() {
        for word in 0..6 {
            let sequence = Sequence::new(3);
            let right = signatures(1)[0];
            let mut wrong = right;
            wrong.0[word] ^= 1 << 40;
            assert_eq!(sequence.step(2, &right), Turn::Passed(0));
            assert_eq!(sequence.step(0, &wrong), Turn::Differs);
            assert_eq!(sequence.next(0), (0, 2, right));
            assert_eq!(sequence.step(1, &right), Turn::Passed(0));
            assert_eq!(sequence.missing(0).collect::<Vec<_>>(), [0]);
        }
    }

    #[test]
    fn a_rank_waits_when_it_is_too_far_ahead_of_any() {
        let all = signatures(SLOTS as usize + 1);
        let sequence = Sequence::new(3);
        let (last, before) = all.split_last().unwrap();
        for (number, signature) in before.iter().enumerate() {
            assert_eq!(sequence.step(0, signature), Turn::Passed(number as u64));
        }
        assert_eq!(sequence.step(1, &all[0]), Turn::Passed(0));
        assert_eq!(sequence.step(0, last), Turn::Wait);
        assert_eq!(sequence.behind(0).collect::<Vec<_>>(), [2]);
        assert_eq!(sequence.signature(0), Some(all[0]));
        assert_eq!(sequence.step(2, &all[0]), Turn::Passed(0));
        assert_eq!(sequence.step(0, last), Turn::Passed(SLOTS));
        assert_eq!((sequence.signature(0), sequence.signature(SLOTS)), (None, Some(*last)));
        assert_eq!(sequence.step(1, &all[1]), Turn::Passed(1));
    }
}

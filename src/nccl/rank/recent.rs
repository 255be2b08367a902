//! The last operations that a communicator was given, for who waits in vain for one of them.
//!
//! They are written under the lock of the communicator, and read without it: who waits must not take it, since its holder may
//! wait, too. What is written over while it is read counts as forgotten.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::name::{pack, unpack};

/// Operations that are kept. More are in flight only where groups are large.
pub(crate) const KEPT: u64 = 512;

/// Where the parts of the word begin that starts with a [`head`](crate::nccl::validate::operation::head).
const VISIT: u32 = crate::nccl::validate::operation::HEAD;
const JOINED: u32 = 63;

/// Where the number of an operation begins, in the word behind which lies how often the slot was written: two may have one number, a point
/// and the operation behind it.
const NUMBER: u32 = 16;

/// An operation that agreement gave no number.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// Its number among the operations of the communicator.
    pub(crate) number: u64,
    /// Its [`head`](crate::nccl::validate::operation::head).
    pub(crate) head: u64,
    pub(crate) count: u64,
    /// Its number in the signatures: among the collectives, or the messages from the one rank to the other; [`NOWHERE`] where nobody
    /// compares.
    pub(crate) agreed: u64,
    /// Its number in the sequence of this rank: among the collectives and points, or the messages to or from its peer, from 1 on, as if all
    /// before it had been issued; 0 where it is in none.
    pub(crate) sequence: u64,
    /// The method that the user called.
    pub(crate) operation: &'static str,
    /// When it was written down; see [`tick`](crate::clock::tick).
    pub(crate) when: u64,
    /// The serial number of its stream, or 0.
    pub(crate) stream: u64,
    /// The lower bits of the number of the visit in which NCCL is given it.
    pub(crate) visit: u16,
    /// Whether it goes together with the operation before it.
    pub(crate) joined: bool,
}

#[derive(Debug, Default)]
struct Slot {
    /// The number of the operation, 0 while it is written; and how often that was.
    state: AtomicU64,
    head: AtomicU64,
    count: AtomicU64,
    agreed: AtomicU64,
    sequence: AtomicU64,
    name: AtomicU64,
    when: AtomicU64,
    stream: AtomicU64,
}

/// The last operations of one communicator.
#[derive(Debug)]
pub(crate) struct Recent {
    slots: Box<[Slot; KEPT as usize]>,
    /// The number of the last operation that was written down whole.
    last: AtomicU64,
}

impl Default for Recent {
    fn default() -> Self {
        Self { slots: Box::new(std::array::from_fn(|_| Slot::default())), last: AtomicU64::new(0) }
    }
}

impl Recent {
    #[inline]
    fn slot(&self, number: u64) -> &Slot {
        &self.slots[(number % KEPT) as usize]
    }

    /// Keeps an operation in place of the one [`KEPT`] before it, or of another that was to have its number. One thread at a
    /// time.
    #[inline]
    pub(crate) fn keep(&self, record: Record) {
        let Record { number, head, count, agreed, sequence, operation, when, stream, visit, joined } = record;
        let slot = self.slot(number);
        let times = (slot.state.load(Ordering::Relaxed) as u16).wrapping_add(1);
        slot.state.store(times.into(), Ordering::Relaxed);
        // Who reads any of what follows reads no number before it.
        fence(Ordering::Release);
        let head = head | u64::from(visit) << VISIT | u64::from(joined) << JOINED;
        slot.head.store(head, Ordering::Relaxed);
        slot.count.store(count, Ordering::Relaxed);
        slot.agreed.store(agreed, Ordering::Relaxed);
        slot.sequence.store(sequence, Ordering::Relaxed);
        slot.name.store(pack(operation), Ordering::Relaxed);
        slot.when.store(when, Ordering::Relaxed);
        slot.stream.store(stream, Ordering::Relaxed);
        slot.state.store(number << NUMBER | u64::from(times), Ordering::Release);
        if number > self.last.load(Ordering::Relaxed) {
            self.last.store(number, Ordering::Release);
        }
    }

    /// The operation with this number, unless it was forgotten.
    pub(crate) fn get(&self, number: u64) -> Option<Record> {
        let slot = self.slot(number);
        let before = slot.state.load(Ordering::Acquire);
        let words = [&slot.head, &slot.count, &slot.agreed, &slot.sequence, &slot.name, &slot.when, &slot.stream];
        let [head, count, agreed, sequence, name, when, stream] = words.map(|word| word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let undisturbed = before >> NUMBER == number && slot.state.load(Ordering::Relaxed) == before;
        (undisturbed && number != 0).then(|| Record {
            number,
            head: head & ((1 << VISIT) - 1),
            count,
            agreed,
            sequence,
            // SAFETY: slots hold what `pack` has made, or 0.
            operation: unsafe { unpack(name) },
            when,
            stream,
            visit: (head >> VISIT) as u16,
            joined: head >> JOINED != 0,
        })
    }

    /// The number of the last operation; 0 where there is none.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// The operations that are kept, the oldest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = Record> {
        kept(self.last()).filter_map(|number| self.get(number))
    }
}

/// The numbers of the operations that are kept once there is one with the number `last`.
pub(crate) fn kept(last: u64) -> RangeInclusive<u64> {
    (last + 1).saturating_sub(KEPT).max(1)..=last
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["all_reduce", "send", ""];

    /// One whose words all follow from its number.
    fn record(number: u64) -> Record {
        Record {
            number,
            head: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & ((1 << VISIT) - 1),
            count: !number,
            agreed: number ^ 0x55,
            sequence: number / 3,
            operation: NAMES[(number % 3) as usize],
            when: number << 20,
            stream: number % 7,
            visit: number as u16,
            joined: number.is_multiple_of(2),
        }
    }

    #[test]
    fn the_last_ones_are_kept() {
        let recent = Recent::default();
        assert_eq!((recent.last(), recent.get(0), recent.get(1)), (0, None, None));
        (1..=2 * KEPT + 3).for_each(|number| recent.keep(record(number)));
        let last = recent.last();
        assert_eq!(last, 2 * KEPT + 3);
        for number in 0..=last + 1 {
            let kept = number <= last && number > last - KEPT;
            assert_eq!(recent.get(number), kept.then(|| record(number)));
        }
        // Another one is to have the number.
        recent.keep(Record { count: 7, ..record(last) });
        assert_eq!(recent.get(last).unwrap().count, 7);
    }

    /// A point has the number of the operation behind it.
    #[test]
    fn of_two_with_one_number_none_is_mixed() {
        let (recent, over) = (Recent::default(), std::sync::atomic::AtomicBool::new(false));
        // All words differ.
        let two = [1, 2].map(|words| Record { number: 5, ..record(words) });
        let state = || recent.slot(5).state.load(Ordering::Relaxed);
        recent.keep(two[0]);
        let before = state();
        recent.keep(two[1]);
        assert_ne!(state(), before, "who has read the first of them takes this for the same");
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| {
                let mut read = 0;
                while !over.load(Ordering::Relaxed) || read == 0 {
                    let got = recent.get(5);
                    assert!(got.is_none_or(|got| two.contains(&got)), "{got:?}");
                    read += 1;
                }
            });
            (0..200_000).for_each(|time| recent.keep(two[time % 2]));
            over.store(true, Ordering::Relaxed);
            reads.join().expect("whole records");
        });
    }

    #[test]
    fn nothing_half_written_is_read() {
        let recent = Recent::default();
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=200_000).for_each(|number| recent.keep(record(number))));
            for _ in 0..2 {
                scope.spawn(|| {
                    while recent.last() < 200_000 {
                        let number = recent.last();
                        for number in [number, number.saturating_sub(KEPT - 1)] {
                            assert!(recent.get(number).is_none_or(|got| got == record(number)));
                        }
                    }
                });
            }
        });
    }
}

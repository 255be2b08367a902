//! The messages from one rank of a clique to another: sender and receiver compare them.
//!
//! Only two take part, so an entry is one word. The first to come writes its message there and goes on; the second compares
//! and empties the word, and so makes room for the message [`ENTRIES`] later.

use std::sync::atomic::{AtomicU64, Ordering};

use super::hint::{self, Apart};
use super::refusal::Refusal;
use super::signature::Signature;
use crate::cuda::MOST_LAUNCHES;
use crate::element::ElementKind;
use crate::error::Result;

/// Messages that one end may be ahead of the other before it waits: as many as operations may be in flight.
const ENTRIES: u64 = MOST_LAUNCHES;

/// Entries beside each other. One end that is ahead so hands several to the other at once.
const PER_LINE: u64 = 16;

/// Which end of a message a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Sender,
    Receiver,
}

/// What an end has to say of a message, in a word that is not 0: the count, the element type, and the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    const PRESENT: u64 = 1;
    const RECEIVER: u64 = 2;
    const KIND: u32 = 2;
    const COUNT: u32 = 8;

    #[inline]
    fn new(end: End, element: ElementKind, count: usize) -> Self {
        // Neither overflows: there are fewer than 64 types, and no buffer holds 2^56 elements.
        let end = if end == End::Receiver { Self::RECEIVER } else { 0 };
        Self(Self::PRESENT | end | (element as u64) << Self::KIND | (count as u64) << Self::COUNT)
    }

    /// The same, said by the other end.
    #[inline]
    fn mirrored(self) -> Self {
        Self(self.0 ^ Self::RECEIVER)
    }

    #[inline]
    fn said_by(self, end: End) -> bool {
        (self.0 & Self::RECEIVER != 0) == (end == End::Receiver)
    }

    fn signature(self) -> Signature {
        let kind = self.0 >> Self::KIND & 0x3f;
        Signature::message(kind, self.0 >> Self::COUNT)
    }
}

/// One direction between two ranks.
#[derive(Debug)]
pub(crate) struct Pair {
    entries: Box<[Apart<[AtomicU64; PER_LINE as usize]>]>,
    /// How many messages each end has passed. Written and read by that rank only, under the lock of its communicator.
    sent: Apart<AtomicU64>,
    received: Apart<AtomicU64>,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self {
            entries: (0..ENTRIES / PER_LINE).map(|_| Apart::default()).collect(),
            sent: Apart::default(),
            received: Apart::default(),
        }
    }

    #[inline]
    fn passed(&self, end: End) -> &AtomicU64 {
        match end {
            End::Sender => &self.sent.0,
            End::Receiver => &self.received.0,
        }
    }

    #[inline]
    fn entry(&self, number: u64) -> &AtomicU64 {
        let place = number % ENTRIES;
        &self.entries[(place / PER_LINE) as usize].0[(place % PER_LINE) as usize]
    }

    /// Says that `end` is about to come to its next message.
    #[inline]
    pub(crate) fn expect(&self, end: End) {
        hint::soon_written(self.entry(self.passed(end).load(Ordering::Relaxed)));
    }

    /// Takes part in the next message as `end`; the other end is rank `peer`.
    #[inline]
    pub(crate) fn agree(
        &self,
        end: End,
        peer: usize,
        (element, count): (ElementKind, usize),
        wait: &mut dyn FnMut(u32) -> Result<()>,
    ) -> Result<(), Refusal> {
        let passed = self.passed(end);
        let number = passed.load(Ordering::Relaxed);
        let entry = self.entry(number);
        let mine = Word::new(end, element, count);
        let mut round = 0;
        loop {
            match entry.compare_exchange(0, mine.0, Ordering::AcqRel, Ordering::Acquire).map_err(Word) {
                Ok(_) => break,
                Err(theirs) if theirs == mine.mirrored() => {
                    entry.store(0, Ordering::Release);
                    break;
                }
                Err(old) if old.said_by(end) => {
                    wait(round).map_err(Refusal::Behind)?;
                    round += 1;
                }
                Err(theirs) => return Err(Refusal::Disagreement { peer, expected: theirs.signature() }),
            }
        }
        passed.store(number + 1, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nccl::ledger::waits::{impatient, patient};

    type Message = (ElementKind, usize);

    fn messages(seed: u64, count: usize) -> Vec<Message> {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| (random.choice(ElementKind::ALL).unwrap(), random.usize(..1 << 40))).collect()
    }

    #[test]
    fn both_ends_pass_the_same_messages_whoever_is_ahead() {
        let (pair, all) = (Pair::new(), messages(fastrand::u64(..), 20_000));
        std::thread::scope(|scope| {
            for (end, seed) in [(End::Sender, 1), (End::Receiver, 2)] {
                let (pair, all) = (&pair, &all);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for (number, &message) in all.iter().enumerate() {
                        if random.u32(..100) == 0 {
                            std::thread::yield_now();
                        }
                        pair.expect(end);
                        pair.agree(end, 7, message, &mut patient).unwrap();
                        assert_eq!(pair.passed(end).load(Ordering::Relaxed), number as u64 + 1);
                    }
                });
            }
        });
        // Nothing is left behind.
        assert!(pair.entries.iter().flat_map(|line| &line.0).all(|entry| entry.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn whoever_comes_second_is_refused_where_they_differ() {
        let said = (ElementKind::F32, 1000);
        for (first, second) in [(End::Sender, End::Receiver), (End::Receiver, End::Sender)] {
            for other in
                [(ElementKind::I32, 1000), (ElementKind::F32, 1001), (ElementKind::F32, 0), (ElementKind::F64, 1000)]
            {
                let pair = Pair::new();
                pair.agree(first, 1, said, &mut impatient).unwrap();
                match pair.agree(second, 7, other, &mut impatient) {
                    Err(Refusal::Disagreement { peer: 7, expected }) => {
                        assert_eq!(expected.describe(), "send and recv of 1000 f32");
                    }
                    got => panic!("{got:?}"),
                }
                assert_eq!(pair.passed(second).load(Ordering::Relaxed), 0);
            }
        }
    }

    #[test]
    fn one_end_waits_when_it_is_too_far_ahead() {
        let (pair, all) = (Pair::new(), messages(fastrand::u64(..), ENTRIES as usize + 1));
        let (last, before) = all.split_last().unwrap();
        for &message in before {
            pair.agree(End::Receiver, 0, message, &mut impatient).unwrap();
        }
        assert!(matches!(pair.agree(End::Receiver, 0, *last, &mut impatient), Err(Refusal::Behind(_))));
        pair.agree(End::Sender, 0, all[0], &mut impatient).unwrap();
        pair.agree(End::Receiver, 0, *last, &mut impatient).unwrap();
    }

    #[test]
    fn words_tell_all_messages_apart() {
        let seed = fastrand::u64(..);
        for message in messages(seed, 1000).into_iter().chain([(ElementKind::I8, 0), (ElementKind::F64, (1 << 56) - 1)])
        {
            let word = Word::new(End::Sender, message.0, message.1);
            assert!(word.said_by(End::Sender) && word.mirrored().said_by(End::Receiver));
            assert_eq!(word.mirrored(), Word::new(End::Receiver, message.0, message.1));
            assert_eq!(word.signature(), Signature::message(message.0 as u64, message.1 as u64));
        }
    }
}

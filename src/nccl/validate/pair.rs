//! The messages from one rank of a clique to another, which the sender and the receiver compare.
//!
//! Only two ranks take part, so an entry is one word. The first to come writes its message there
//! and goes on. The second compares it and empties the word, which makes room for the message
//! [`ENTRIES`] later.
//!
//! Neither end waits for room: one thread may record more messages in a group than there are
//! entries, before the other end has come to the first. If the entry still holds its own message
//! from [`ENTRIES`] earlier, the end that is ahead marks that entry and goes on in a list. The
//! other end sees the mark when it comes there, and so knows at which number the list begins. When
//! it has caught up, both go back to the entries. The list and all entries are empty then.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::element_type;
use super::element_type::Type;
use super::operation::{describe, head_of_message};
use super::signature;
use super::signature::Numbers;
use crate::cuda::Backing;
use crate::hint::{self, Apart};
use crate::lock::{Mutex, MutexGuard};

/// Messages that one end may be ahead of the other before it goes on in a list.
const ENTRIES: u64 = 512;

/// Entries beside each other. One end that is ahead so hands several to the other at once.
const PER_LINE: u64 = 16;

/// There is no list.
const NEVER: u64 = u64::MAX;

/// Which end of a message a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Sender,
    Receiver,
}

impl End {
    /// The other one.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

/// A message, as one of its ends issues it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) element: Type,
    pub(crate) count: usize,
    /// Whether this end lies in a window, or in registered memory.
    pub(crate) window: bool,
    /// How many collectives that NCCL makes messages of came before it on this rank, between the
    /// same two.
    pub(crate) exchanges: u64,
    pub(crate) manner: Manner,
}

/// How a message comes to NCCL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It is enqueued.
    Plain,
    /// It is captured into a graph, with such memory at this end.
    Captured(Backing),
    /// A graph is launched that holds messages between the two, which stand [in a
    /// word](Word::numbers) for the count.
    Launched,
}

/// What an end has to say of a message, in a word that is not 0: the count, the element type, the
/// exchanges before, and the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(super) u64);

impl Word {
    const PRESENT: u64 = 1;
    const RECEIVER: u64 = 2;
    pub(super) const KIND: u32 = 2;
    const EXCHANGES: u32 = Self::KIND + element_type::BITS;
    /// Exchanges count up to this, and begin again.
    const LAPS: u64 = (1 << (Self::COUNT - Self::EXCHANGES)) - 1;
    const COUNT: u32 = 19;
    /// Of what stands for the count where a graph is launched: the number of its first message.
    /// Above that is the digest of all.
    const FIRST: u64 = (1 << 26) - 1;
    /// Of what is captured, in place of the highest bits of the count: what lies behind the memory
    /// of this end.
    const BACKING: u32 = 60 - signature::BACKING_BITS;
    /// It is captured into a graph; it is the launch of one.
    const CAPTURED: u64 = 1 << 60;
    const LAUNCHED: u64 = 1 << 61;
    /// This end lies in a window, or in registered memory.
    const WINDOW: u64 = 1 << 62;
    /// The message [`ENTRIES`] later stands in the list.
    const LISTED: u64 = 1 << 63;

    #[inline]
    pub(crate) fn new(end: End, message: Message) -> Self {
        // No buffer holds 2^39 elements, and no rank is 2^10 collectives ahead of another.
        let end = if end == End::Receiver { Self::RECEIVER } else { 0 };
        let window = if message.window { Self::WINDOW } else { 0 };
        let count = (message.count as u64) << Self::COUNT & (Self::CAPTURED - 1);
        let (count, manner) = match message.manner {
            Manner::Plain => (count, 0),
            Manner::Captured(backing) => {
                let backing = signature::backing_number(backing) << Self::BACKING;
                (count & ((1 << Self::BACKING) - 1) | backing, Self::CAPTURED)
            }
            Manner::Launched => (count, Self::LAUNCHED),
        };
        Self(
            Self::PRESENT
                | end
                | message.element.number() << Self::KIND
                | (message.exchanges & Self::LAPS) << Self::EXCHANGES
                | count
                | window
                | manner,
        )
    }

    /// The same, said by the other end.
    #[inline]
    pub(crate) fn mirrored(self) -> Self {
        Self(self.0 ^ Self::RECEIVER)
    }

    #[inline]
    pub(super) fn said_by(self, end: End) -> bool {
        (self.0 & Self::RECEIVER != 0) == (end == End::Receiver)
    }

    /// In words, for an error that sets it against what the other end said; `peer` is the rank of
    /// that one.
    pub(crate) fn against(self, other: Self, peer: usize) -> String {
        let count = self.count();
        if self.0 & Self::LAUNCHED != 0 {
            let first = |count: u64| count & Self::FIRST;
            let number = first(count) + 1;
            let mut text = format!("launch of the graph with message {number} between it and rank {peer}");
            if other.0 & Self::LAUNCHED != 0 && first(count) == first(other.count()) && count != other.count() {
                text.push_str(", and not the same behind it");
            }
            return text;
        }
        let element = Type::numbered(self.0 >> Self::KIND & ((1 << element_type::BITS) - 1));
        let mut text = describe(head_of_message(self.said_by(End::Receiver), element, peer), count);
        if self.0 & Self::CAPTURED != 0 {
            text.push_str(", captured into a graph");
            if other.0 & Self::CAPTURED != 0 && self.backing() != other.backing() {
                text.push_str(if self.said_by(End::Receiver) { ", received in " } else { ", sent from " });
                text.push_str(signature::describe_backing(self.backing()));
            }
        }
        if (self.0 ^ other.0) & Self::WINDOW != 0 {
            text.push_str(if self.0 & Self::WINDOW != 0 {
                " in a window or registered memory"
            } else {
                " outside of windows and of registered memory"
            });
        }
        match self.ahead_of(other.exchanges()) {
            0 => {}
            more @ 1.. => text.push_str(&format!(", after {more} more of all_to_all, gather and scatter")),
            more => text.push_str(&format!(", after {} fewer of all_to_all, gather and scatter", -more)),
        }
        text
    }

    fn count(self) -> u64 {
        let end = if self.0 & Self::CAPTURED != 0 { 1 << Self::BACKING } else { Self::CAPTURED };
        (self.0 & (end - 1)) >> Self::COUNT
    }

    /// The number of what lies behind the memory of this end, of what is captured.
    fn backing(self) -> u64 {
        self.0 >> Self::BACKING & ((1 << signature::BACKING_BITS) - 1)
    }

    /// What stands for the count where a graph with these messages is launched.
    pub(crate) fn numbers(all: &Numbers) -> usize {
        (all.first & Self::FIRST | all.digest & !Self::FIRST) as usize
    }

    fn exchanges(self) -> u64 {
        self.0 >> Self::EXCHANGES & Self::LAPS
    }

    /// How many more than `exchanges` came before it; less than 0 where fewer.
    fn ahead_of(self, exchanges: u64) -> i64 {
        let ahead = (self.exchanges().wrapping_sub(exchanges) & Self::LAPS) as i64;
        if ahead > Self::LAPS as i64 / 2 { ahead - Self::LAPS as i64 - 1 } else { ahead }
    }

    /// Whether fewer than `exchanges` came before it.
    pub(crate) fn is_before(self, exchanges: u64) -> bool {
        self.ahead_of(exchanges) < 0
    }

    /// In words; `peer` is the other rank.
    pub(crate) fn describe(self, peer: usize) -> String {
        self.against(self, peer)
    }
}

/// An end has come to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) number: u64,
    /// Whether the other end has not.
    pub(crate) first: bool,
}

/// One direction between two ranks.
#[derive(Debug)]
pub(crate) struct Pair {
    entries: Box<[Apart<[AtomicU64; PER_LINE as usize]>]>,
    sent: Apart<Side>,
    received: Apart<Side>,
    list: Mutex<List>,
}

/// How far one end is. Written by that rank only, under the lock of its communicator.
#[derive(Debug)]
struct Side {
    /// Messages that it has passed.
    passed: AtomicU64,
    /// From this message on it looks at the list.
    detour: AtomicU64,
}

impl Default for Side {
    fn default() -> Self {
        Self { passed: AtomicU64::new(0), detour: AtomicU64::new(NEVER) }
    }
}

/// The messages of the end that is too far ahead for the entries, one after another.
#[derive(Debug, Default)]
struct List {
    words: VecDeque<Word>,
    /// The number of the first.
    first: u64,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self {
            entries: (0..ENTRIES / PER_LINE).map(|_| Apart::default()).collect(),
            sent: Apart::default(),
            received: Apart::default(),
            list: Mutex::default(),
        }
    }

    #[inline]
    fn side(&self, end: End) -> &Side {
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

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock()
    }

    /// How many messages `end` has come to.
    pub(crate) fn passed(&self, end: End) -> u64 {
        self.side(end).passed.load(Ordering::Acquire)
    }

    /// A hint for the caches: `end` is about to write its next message.
    #[inline]
    pub(crate) fn expect(&self, end: End) {
        hint::soon_written(self.entry(self.side(end).passed.load(Ordering::Relaxed)));
    }

    /// What the other end has said of the message that `end` comes to next.
    pub(crate) fn waiting(&self, end: End) -> Option<Word> {
        let side = self.side(end);
        let number = side.passed.load(Ordering::Relaxed);
        if number >= side.detour.load(Ordering::Relaxed) {
            let list = self.list();
            if list.first == number && list.words.front().is_some_and(|word| !word.said_by(end)) {
                return list.words.front().copied();
            }
        }
        let word = Word(self.entry(number).load(Ordering::SeqCst));
        (word.0 & Word::PRESENT != 0 && !word.said_by(end)).then_some(word)
    }

    /// Takes part in the next message as `end`, unless the other end has said something else: then,
    /// what. Who is first has said so when this returns, in the one order that all SeqCst
    /// operations have.
    #[inline]
    pub(crate) fn agree(&self, end: End, message: Message) -> Result<Met, Word> {
        let side = self.side(end);
        let number = side.passed.load(Ordering::Relaxed);
        let mine = Word::new(end, message);
        if number >= side.detour.load(Ordering::Relaxed) {
            return self.by_list(end, number, mine);
        }
        let entry = self.entry(number);
        let first = match entry.compare_exchange(0, mine.0, Ordering::SeqCst, Ordering::Acquire).map_err(Word) {
            Ok(_) => true,
            Err(theirs) if theirs == mine.mirrored() => {
                // The other end may have marked it in between.
                if entry.swap(0, Ordering::AcqRel) & Word::LISTED != 0 {
                    side.detour.store(number + ENTRIES, Ordering::Relaxed);
                }
                false
            }
            Err(_) => return self.unusual(end, number, mine),
        };
        side.passed.store(number + 1, Ordering::Release);
        Ok(Met { number, first })
    }

    /// Handles an entry that is neither empty nor the expected one.
    #[cold]
    fn unusual(&self, end: End, number: u64, mine: Word) -> Result<Met, Word> {
        let (side, entry) = (self.side(end), self.entry(number));
        let mut list = self.list();
        let first = loop {
            match entry.compare_exchange(0, mine.0, Ordering::SeqCst, Ordering::Acquire).map_err(Word) {
                Ok(_) => break true,
                Err(own) if own.said_by(end) => {
                    // It is full. If the other end comes in between, there is room again.
                    let listed = own.0 | Word::LISTED;
                    if entry.compare_exchange(own.0, listed, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                        list.first = number;
                        list.words.push_back(mine);
                        side.detour.store(number, Ordering::Relaxed);
                        break true;
                    }
                }
                Err(theirs) if theirs.0 & !Word::LISTED == mine.mirrored().0 => {
                    if theirs.0 & Word::LISTED != 0 {
                        side.detour.store(number + ENTRIES, Ordering::Relaxed);
                    }
                    entry.store(0, Ordering::Release);
                    break false;
                }
                Err(theirs) => return Err(theirs),
            }
        };
        drop(list);
        fence(Ordering::SeqCst);
        side.passed.store(number + 1, Ordering::Release);
        Ok(Met { number, first })
    }

    /// The list has the message, or has been left behind.
    #[cold]
    fn by_list(&self, end: End, number: u64, mine: Word) -> Result<Met, Word> {
        let side = self.side(end);
        let mut list = self.list();
        let next = list.first + list.words.len() as u64;
        let first = match list.words.front().copied() {
            Some(own) if own.said_by(end) && next == number => {
                list.words.push_back(mine);
                true
            }
            Some(theirs) if !theirs.said_by(end) && list.first == number => {
                if theirs != mine.mirrored() {
                    return Err(theirs);
                }
                list.words.pop_front();
                list.first += 1;
                false
            }
            // Both ends have passed all of it. Where there is one again, a mark in an entry that is still to come says so.
            _ => {
                side.detour.store(NEVER, Ordering::Relaxed);
                drop(list);
                return self.unusual(end, number, mine);
            }
        };
        drop(list);
        fence(Ordering::SeqCst);
        side.passed.store(number + 1, Ordering::Release);
        Ok(Met { number, first })
    }
}

#[cfg(test)]
#[path = "pair_tests.rs"]
mod tests;

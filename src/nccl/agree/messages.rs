//! The messages of a checked communicator: each is compared by the second of its two ends, and by who leaves in place of it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::checked::{Checked, unreadable};
use super::dispute::Verdict;
use super::pair::{End as Side, Message, Word};
use super::round::Round;
use super::told::{self, Told};
use crate::error::Result;
use crate::exchange::Came;

impl Checked {
    /// The key of a message by its number among theirs.
    fn message_key(sender: usize, receiver: usize, number: u64) -> String {
        format!("m/{sender}-{receiver}/{number}")
    }

    /// Where collectives that NCCL makes messages of do not come behind the same messages on both ends: who is behind.
    pub(super) fn misplaced(
        &self,
        operation: &'static str,
        round: &Round,
        told: &[Option<Told>],
    ) -> Result<Option<Verdict>> {
        let (own, size) = (self.rank(), self.size());
        for (kind, what) in &round.exchanges {
            for (peer, theirs) in told.iter().enumerate() {
                let Some(Told::Does { messages, .. }) = theirs else { continue };
                for (sender, receiver) in [(own, peer), (peer, own)] {
                    if !kind.is_between(sender, receiver) {
                        continue;
                    }
                    let (mine, theirs) = match sender == own {
                        true => (round.messages.get(peer), messages.get(size + own)),
                        false => (round.messages.get(size + peer), messages.get(own)),
                    };
                    let (Some(&mine), Some(&theirs)) = (mine, theirs) else { continue };
                    if mine != theirs {
                        let (rank, ahead) = if mine < theirs { (own, peer) } else { (peer, own) };
                        let key = Self::message_key(sender, receiver, mine.min(theirs));
                        let expected = self.word(operation, &key)?.map_or_else(
                            || format!("a message between it and rank {ahead}"),
                            |word| word.describe(rank),
                        );
                        return Ok(Some(Verdict { rank, peer: ahead, expected, got: format!("{what} before that") }));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Compares a message of which this rank is `side` and `peer` the other: its number among theirs, or what the other end has said, which is
    /// something else.
    pub(crate) fn message(
        &self,
        operation: &'static str,
        (side, peer): (Side, usize),
        message: Message,
        within: Duration,
    ) -> Result<u64> {
        let (own, size) = (self.rank(), self.size());
        let (count, key) = match side {
            Side::Sender => (&self.messages[peer], (own, peer)),
            Side::Receiver => (&self.messages[size + peer], (peer, own)),
        };
        let number = count.load(Ordering::Relaxed);
        let key = Self::message_key(key.0, key.1, number);
        let bytes = told::encode_word(Word::new(side, message));
        let exchange = self.exchange(operation)?;
        let stands = word(operation, &key, &exchange.leave_first(operation, &key, &bytes, within)?)?;
        let mine = word(operation, &key, &bytes)?;
        if stands != mine {
            if stands != mine.mirrored() {
                let (expected, got) = (stands.against(mine, own), mine.against(stands, peer));
                return Err(self.decide(operation, Verdict { rank: own, peer, expected, got }));
            }
            exchange.take_note(&key);
        } else if let Some(got) = self.has_left(operation, peer)? {
            let expected = mine.mirrored().describe(own);
            return Err(self.decide(operation, Verdict { rank: peer, peer: own, expected, got }));
        }
        count.store(number + 1, Ordering::Relaxed);
        Ok(number)
    }

    /// What the first to come has said of a message, if it waits still.
    fn word(&self, operation: &'static str, key: &str) -> Result<Option<Word>> {
        let bytes = self.exchange(operation)?.note_of_any(key, Duration::ZERO)?;
        bytes.map(|bytes| word(operation, key, &bytes)).transpose()
    }

    /// This rank has left, and has said so: whether another has come to a message of which it has not made the other end. Who comes to one
    /// later sees that this rank has left.
    pub(super) fn left_behind(&self, how: &str) -> Option<Verdict> {
        let (own, size) = (self.rank(), self.size());
        let counts = |at: usize| self.messages[at].load(Ordering::Relaxed);
        let of = |peer: usize| {
            let ends = [Self::message_key(own, peer, counts(peer)), Self::message_key(peer, own, counts(size + peer))];
            ends.map(|key| (peer, key))
        };
        let keys: Vec<_> = (0..size).filter(|peer| *peer != own).flat_map(of).collect();
        let came = self.exchange("close").ok()?.notes(&keys, Duration::from_millis(1)).ok()?;
        keys.iter().zip(came).find_map(|((peer, key), came)| {
            let Came::Value(bytes) = came else { return None };
            let expected = word("close", key, &bytes).ok()?.mirrored().describe(*peer);
            Some(Verdict { rank: own, peer: *peer, expected, got: how.to_owned() })
        })
    }
}

fn word(operation: &'static str, key: &str, bytes: &[u8]) -> Result<Word> {
    told::decode_word(bytes).ok_or_else(|| unreadable(operation, key.to_owned(), bytes.len()))
}

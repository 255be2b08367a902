//! Compares messages between two ranks: the first rank to come leaves a note, and the second compares.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::round::Round;
use super::this_rank::{OverExchange, unreadable};
use crate::error::{Error, Result};
use crate::exchange::Came;
use crate::nccl::validate::ballot::Verdict;
use crate::nccl::validate::notes::{self, Note};
use crate::nccl::validate::pair::{End, Message, Word};

impl OverExchange {
    /// The key of a message, by its number among the messages of the two ranks.
    fn message_key(sender: usize, receiver: usize, number: u64) -> String {
        format!("m/{sender}-{receiver}/{number}")
    }

    /// Checks that collectives that NCCL makes messages of come behind the same messages on both
    /// ends. If they do not, the verdict names the rank that is behind.
    pub(super) fn misplaced(
        &self,
        operation: &'static str,
        round: &Round,
        told: &[Option<Note>],
    ) -> Result<Option<Verdict>> {
        let (own, size) = (self.rank(), self.size());
        for (kind, what) in &round.exchanges {
            for (peer, theirs) in told.iter().enumerate() {
                let Some(Note::Does { messages, .. }) = theirs else { continue };
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
                            |word| word.mirrored().describe(ahead),
                        );
                        return Ok(Some(Verdict::new(rank, ahead, expected, format!("{what} before that"))));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Compares a message of which this rank is the end `side` and `peer` the other end. Returns its
    /// number among their messages, or the message that the other end has, if that differs.
    pub(crate) fn message(
        &self,
        operation: &'static str,
        (side, peer): (End, usize),
        message: Message,
        within: Duration,
    ) -> Result<u64> {
        let (own, size) = (self.rank(), self.size());
        let (count, key) = match side {
            End::Sender => (&self.messages[peer], (own, peer)),
            End::Receiver => (&self.messages[size + peer], (peer, own)),
        };
        let number = count.load(Ordering::Relaxed);
        let key = Self::message_key(key.0, key.1, number);
        let bytes = notes::encode_word(Word::new(side, message));
        let exchange = self.exchange(operation)?;
        let stands = word(operation, &key, &exchange.leave_first(operation, &key, &bytes, within)?)?;
        let mine = word(operation, &key, &bytes)?;
        if stands != mine {
            if stands != mine.mirrored() {
                return Err(self.decide(operation, Verdict::of_message(own, peer, number, stands, mine)));
            }
            exchange.take_note(&key);
        } else if let Some(leave) = self.has_left(operation, peer)? {
            return Err(self.decide(operation, leave.verdict(peer, own, mine.mirrored().describe(own))));
        } else if let Some((rank, how)) = exchange.departed_of(&[peer], within) {
            return Err(Error::Departed { operation, rank, how });
        }
        count.store(number + 1, Ordering::Relaxed);
        Ok(number)
    }

    /// Returns the note that the first rank left for a message, if that rank still waits.
    fn word(&self, operation: &'static str, key: &str) -> Result<Option<Word>> {
        let bytes = self.exchange(operation)?.note_of_any(key, Duration::ZERO)?;
        bytes.map(|bytes| word(operation, key, &bytes)).transpose()
    }

    /// Returns the verdict if another rank waits for a message of this rank, which has left and said so.
    /// A rank that comes to such a message later sees that this rank has left.
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
            Some(Verdict::departed(own, *peer, expected, how.to_owned()))
        })
    }
}

fn word(operation: &'static str, key: &str, bytes: &[u8]) -> Result<Word> {
    notes::decode_word(bytes).ok_or_else(|| unreadable(operation, key.to_owned(), bytes.len()))
}

//! The numbers of a communicator's operations, and its works: one for each stream.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cuda::{Fate, Stream, Work};

/// Streams whose works are at hand; those of others are found again at their stream.
const AT_HAND: usize = 4;

/// Streams that were used before those, of which it is known still what is done.
const BEFORE: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct Works {
    /// The last operation, on whatever stream.
    number: u64,
    /// By the serial number of the stream; the one that was used last comes first.
    at_hand: Vec<(u64, Arc<Work>)>,
    /// Those that were at hand before; the one that was used last comes last.
    before: VecDeque<(u64, Arc<Work>)>,
}

impl Works {
    /// The number of the operation that comes next.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.number + 1
    }

    /// The work that the next operation on `stream` belongs to, if it is at hand.
    #[inline]
    pub(crate) fn of(&self, stream: &Stream) -> Option<&Work> {
        let found = self.at_hand.iter().find(|(serial, _)| *serial == stream.serial());
        found.map(|(_, work)| &**work).filter(|work| work.reaches(self.next()))
    }

    /// By the serial numbers of the streams that were used last: the last operation that somebody has seen to be done.
    pub(crate) fn seen(&self) -> Vec<(u64, u64)> {
        self.at_hand.iter().chain(&self.before).map(|(stream, work)| (*stream, work.observed())).collect()
    }

    /// After the enqueue of an operation on `stream`, or an attempt: the work that it belongs to, and its number. `fate` is how the
    /// communicator ends, and `make` makes a work of it whose operations come after the number given.
    #[inline]
    pub(crate) fn enqueued(
        &mut self,
        fate: &Arc<Fate>,
        stream: &Stream,
        make: impl FnOnce(u64) -> Work,
    ) -> (&Arc<Work>, u64) {
        self.number += 1;
        let number = self.number;
        let found = match self.at_hand.first() {
            Some((serial, work)) => *serial == stream.serial() && work.reaches(number),
            None => false,
        };
        if !found {
            self.find(fate, stream, number, make);
        }
        let work = &self.at_hand[0].1;
        work.enqueue(number);
        (work, number)
    }

    /// Puts the work of `stream` first, for operation `number`.
    #[cold]
    fn find(&mut self, fate: &Arc<Fate>, stream: &Stream, number: u64, make: impl FnOnce(u64) -> Work) {
        let serial = stream.serial();
        self.at_hand.retain(|(_, work)| work.reaches(number));
        match self.at_hand.iter().position(|(known, _)| *known == serial) {
            Some(at) => self.at_hand.swap(0, at),
            None => {
                let work = stream.history().adopt(fate, number, || make(number - 1));
                self.before.retain(|(known, _)| *known != serial);
                self.before.extend(self.at_hand.drain((AT_HAND - 1).min(self.at_hand.len())..));
                self.before.drain(..self.before.len().saturating_sub(BEFORE));
                self.at_hand.insert(0, (serial, work));
            }
        }
    }
}

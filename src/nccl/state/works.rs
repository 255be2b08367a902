//! The numbers of a communicator's operations, and its works: one for each stream.

use std::sync::Arc;

use super::inner::Inner;
use crate::cuda::{Stream, Work};

/// Streams whose works are at hand; those of others are found again at their stream.
const AT_HAND: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Works {
    /// The last operation, on whatever stream.
    number: u64,
    /// By the serial number of the stream; the one that was used last comes first.
    at_hand: Vec<(u64, Arc<Work>)>,
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

    /// After the enqueue of an operation on `stream`, or an attempt: the work that it belongs to, and its number.
    #[inline]
    pub(crate) fn enqueued(&mut self, inner: &Inner, stream: &Stream) -> (&Arc<Work>, u64) {
        self.number += 1;
        let number = self.number;
        let found = match self.at_hand.first() {
            Some((serial, work)) => *serial == stream.serial() && work.reaches(number),
            None => false,
        };
        if !found {
            self.find(inner, stream, number);
        }
        let work = &self.at_hand[0].1;
        work.enqueue(number);
        (work, number)
    }

    /// Puts the work of `stream` first, for operation `number`.
    #[cold]
    fn find(&mut self, inner: &Inner, stream: &Stream, number: u64) {
        let serial = stream.serial();
        self.at_hand.retain(|(_, work)| work.reaches(number));
        match self.at_hand.iter().position(|(known, _)| *known == serial) {
            Some(at) => self.at_hand.swap(0, at),
            None => {
                let work = stream.history().adopt(inner.fate(), number, || inner.new_work(number - 1));
                self.at_hand.truncate(AT_HAND - 1);
                self.at_hand.insert(0, (serial, work));
            }
        }
    }
}

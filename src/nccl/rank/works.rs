//! Numbers the operations of a rank, and keeps one work for each stream.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cuda::{Fate, Stream, Work};

/// How many streams have their works here. The works of others are found at their stream.
const AT_HAND: usize = 4;

/// How many earlier streams are kept, with the last operation that is known to be done.
const BEFORE: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct Works {
    /// The number of the last operation on any stream.
    number: u64,
    /// The works, by the serial numbers of their streams. The stream that was used last comes
    /// first.
    at_hand: Vec<(u64, Arc<Work>)>,
    /// The works that were here before. The stream that was used last comes last.
    before: VecDeque<(u64, Arc<Work>)>,
}

impl Works {
    /// The number of the next operation.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.number + 1
    }

    /// The work that the next operation on `stream` belongs to, if it is here.
    #[inline]
    pub(crate) fn of(&self, stream: &Stream) -> Option<&Work> {
        let found = self.at_hand.iter().find(|(serial, _)| *serial == stream.serial());
        found.map(|(_, work)| &**work).filter(|work| work.reaches(self.next()))
    }

    /// The last operation that was seen to be done on each of the streams that were used last, by
    /// their serial numbers.
    pub(crate) fn seen(&self) -> Vec<(u64, u64)> {
        self.at_hand.iter().chain(&self.before).map(|(stream, work)| (*stream, work.observed())).collect()
    }

    /// Adds an operation that was enqueued on `stream`, or an attempt. Returns its work and its
    /// number. `fate` says how the communicator ends, and `make` makes a work whose operations come
    /// after the number that it is passed.
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
                let work = stream.history().adopt(fate, number, || make(number - 1).on(stream.downgrade()));
                self.before.retain(|(known, _)| *known != serial);
                self.before.extend(self.at_hand.drain((AT_HAND - 1).min(self.at_hand.len())..));
                self.before.drain(..self.before.len().saturating_sub(BEFORE));
                self.at_hand.insert(0, (serial, work));
            }
        }
    }
}

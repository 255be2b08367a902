//! How many operations a rank has issued: by these numbers those of other processes are compared with them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::points::{Point, Points};
use crate::nccl::agree::pair::End;

/// Counted under the lock of the communicator, and read without it.
#[derive(Debug, Default)]
pub(crate) struct Issued {
    /// The number of the last operation that NCCL was given.
    number: AtomicU64,
    /// How many of them are collectives, points included.
    collectives: AtomicU64,
    /// For each rank: messages to it, and from it.
    messages: OnceLock<Box<[[AtomicU64; 2]]>>,
    points: Points,
}

/// What was issued up to one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals {
    pub(crate) number: u64,
    pub(crate) collectives: u64,
    /// Empty where there were no messages.
    pub(crate) messages: Vec<[u64; 2]>,
}

impl Issued {
    /// NCCL was given operation `number`, of a communicator of `size` ranks: a collective, or a message to or from a peer.
    #[inline]
    pub(crate) fn count(&self, message: Option<(End, usize)>, number: u64, size: usize) {
        match message {
            None => add(&self.collectives),
            Some((end, peer)) => {
                let all = self.messages.get_or_init(|| (0..size).map(|_| Default::default()).collect());
                all.get(peer).into_iter().for_each(|ends| add(&ends[side(end)]));
            }
        }
        self.number.store(number, Ordering::Release);
    }

    /// The rank has come to a point in the sequence of collectives.
    pub(crate) fn point(&self, operation: &'static str, head: u64, count: u64) {
        add(&self.collectives);
        self.points.add(operation, (head, count), self.collectives.load(Ordering::Relaxed));
    }

    /// The points that it came to last.
    pub(crate) fn points(&self) -> Vec<Point> {
        self.points.all()
    }

    /// All of it; a little old where somebody counts at the same time.
    pub(crate) fn totals(&self) -> Totals {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let messages = self
            .messages
            .get()
            .map_or_else(Vec::new, |all| all.iter().map(|[to, from]| [load(to), load(from)]).collect());
        Totals { number: self.number.load(Ordering::Acquire), collectives: load(&self.collectives), messages }
    }
}

impl Totals {
    /// Adds what comes next: its number in its sequence, from 1 on.
    pub(crate) fn add(&mut self, message: Option<(End, usize)>, size: usize) -> u64 {
        let count = match message {
            None => &mut self.collectives,
            Some((end, peer)) => {
                self.messages.resize(size.max(peer + 1), [0; 2]);
                &mut self.messages[peer][side(end)]
            }
        };
        *count += 1;
        *count
    }

    /// Takes back what came last: its number in its sequence, from 1 on.
    pub(crate) fn take_back(&mut self, message: Option<(End, usize)>) -> u64 {
        let count = match message {
            None => &mut self.collectives,
            Some((end, peer)) => match self.messages.get_mut(peer) {
                Some(ends) => &mut ends[side(end)],
                None => return 0,
            },
        };
        let number = *count;
        *count = count.saturating_sub(1);
        number
    }
}

fn side(end: End) -> usize {
    match end {
        End::Sender => 0,
        End::Receiver => 1,
    }
}

/// One more, where nobody else adds at the same time.
#[inline]
fn add(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

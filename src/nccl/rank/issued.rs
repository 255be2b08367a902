//! Counts what a rank has issued, so that dumps of several processes can be compared: operations,
//! points, graphs, and what it waits for.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::held::{Graph, Held, Holds};
use crate::clock;
use crate::lock::{Mutex, MutexGuard};
use crate::nccl::validate::pair::End;

/// What a rank has issued. Written under the lock of the rank, and read without it.
#[derive(Debug, Default)]
pub(crate) struct Issued {
    /// The number of the last operation that NCCL was given.
    number: AtomicU64,
    /// How many of them are collectives, points included.
    collectives: Count,
    /// The messages to and from each rank.
    messages: OnceLock<Box<[[Count; 2]]>>,
    points: Points,
    /// What the rank waits for before it issues the next operation.
    compared: Compared,
    graphs: Holds,
}

/// The length of one sequence, which other ranks count as well.
#[derive(Debug, Default)]
struct Count {
    issued: AtomicU64,
    /// How many operations of the group that was recorded last NCCL was not given yet, if any.
    ahead: AtomicU64,
}

/// A snapshot of the counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) collectives: u64,
    /// The messages to and from each rank. Empty if there were no messages.
    pub(crate) messages: Vec<[u64; 2]>,
}

impl Totals {
    /// Whether rank `own`, which has issued this, waits for an operation that `rank` never issues, as it ends with `theirs`.
    pub(crate) fn waits_for(&self, own: usize, rank: usize, theirs: &Self) -> bool {
        let of = |totals: &Self, peer: usize| totals.messages.get(peer).copied().unwrap_or_default();
        let ([to, from], [their_to, their_from]) = (of(self, rank), of(theirs, own));
        self.collectives > theirs.collectives || to > their_from || from > their_to
    }
}

impl Issued {
    /// The sequence in which a collective counts, or a message to or from a peer, in a communicator
    /// of `size` ranks.
    #[inline]
    fn sequence(&self, message: Option<(End, usize)>, size: usize) -> Option<&Count> {
        let Some((end, peer)) = message else { return Some(&self.collectives) };
        let all = self.messages.get_or_init(|| (0..size).map(|_| Default::default()).collect());
        all.get(peer).map(|ends| &ends[side(end)])
    }

    /// The number in its sequence, from 1 on, of an operation that is issued next.
    #[inline]
    pub(crate) fn next(&self, message: Option<(End, usize)>, size: usize) -> u64 {
        self.sequence(message, size).map_or(0, |count| count.issued.load(Ordering::Relaxed) + 1)
    }

    /// Forgets that this operation of a group was recorded: the group is recorded once more.
    pub(crate) fn forget(&self, message: Option<(End, usize)>, size: usize) {
        self.sequence(message, size).into_iter().for_each(|count| count.ahead.store(0, Ordering::Relaxed));
    }

    /// As [`next`](Self::next), for an operation of a group: it comes behind those that were
    /// recorded before.
    #[inline]
    pub(crate) fn next_of_group(&self, message: Option<(End, usize)>, size: usize) -> u64 {
        self.sequence(message, size).map_or(0, |count| {
            add(&count.ahead);
            count.issued.load(Ordering::Relaxed) + count.ahead.load(Ordering::Relaxed)
        })
    }

    /// Counts a collective, or a message to or from a peer, that NCCL was given. If it is one of a
    /// group, NCCL was given all of that.
    #[inline]
    pub(crate) fn count(&self, message: Option<(End, usize)>, size: usize) {
        if let Some(count) = self.sequence(message, size) {
            add(&count.issued);
            count.ahead.store(0, Ordering::Relaxed);
        }
    }

    /// Notes that NCCL was given operation `number`, which was counted.
    #[inline]
    pub(crate) fn give(&self, number: u64) {
        self.number.store(number, Ordering::Release);
    }

    /// The number of the last operation that NCCL was given.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Adds a point in the sequence of collectives, to which the rank has come.
    pub(crate) fn point(&self, operation: &'static str, head: u64, count: u64) {
        let sequence = self.next(None, 0);
        self.count(None, 0);
        self.points.add(operation, (head, count), sequence);
    }

    /// Notes what the rank waits for in a comparison with others.
    pub(crate) fn compares(&self, what: Arc<str>) {
        self.compared.set(self.number(), what);
    }

    /// Notes that this wait has failed.
    pub(crate) fn comparison_failed(&self) {
        self.compared.end();
    }

    /// Forgets the wait: the rank has gone on.
    #[inline]
    pub(crate) fn compares_no_more(&self) {
        self.compared.clear();
    }

    /// What the rank waits for in a comparison with others, or has waited for in vain, unless it
    /// has gone on since.
    pub(crate) fn comparison(&self) -> Option<Wait> {
        self.compared.get(self.number())
    }

    /// Adds a graph that is about to be captured.
    pub(crate) fn begin_graph(&self) -> Arc<Held> {
        self.graphs.begin()
    }

    /// The operations that graphs hold.
    pub(crate) fn graphs(&self) -> Vec<Graph> {
        self.graphs.all()
    }

    /// The points that the rank came to last.
    pub(crate) fn points(&self) -> Vec<Point> {
        self.points.all()
    }

    /// A snapshot of the counts. It may be a little outdated while another thread counts.
    pub(crate) fn totals(&self) -> Totals {
        let load = |count: &Count| count.issued.load(Ordering::Relaxed);
        let messages = self
            .messages
            .get()
            .map_or_else(Vec::new, |all| all.iter().map(|[to, from]| [load(to), load(from)]).collect());
        Totals { collectives: load(&self.collectives), messages }
    }
}

fn side(end: End) -> usize {
    match end {
        End::Sender => 0,
        End::Receiver => 1,
    }
}

/// Adds one. No other thread adds at the same time.
#[inline]
fn add(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// How many points are kept.
const KEPT: usize = 64;

/// A point that a rank has come to with the others: an allocation, a split and the like. It is no
/// operation on a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    /// Its number among the collectives, from 1 on.
    pub(crate) sequence: u64,
    pub(crate) head: u64,
    pub(crate) count: u64,
    /// The method that the user called.
    pub(crate) operation: &'static str,
    pub(crate) when: u64,
}

#[derive(Debug, Default)]
struct Points(Mutex<VecDeque<Point>>);

impl Points {
    /// Adds the last point.
    fn add(&self, operation: &'static str, (head, count): (u64, u64), sequence: u64) {
        let mut points = self.0.lock();
        if points.len() == KEPT {
            points.pop_front();
        }
        points.push_back(Point { sequence, head, count, operation, when: clock::tick() });
    }

    fn all(&self) -> Vec<Point> {
        self.0.lock().iter().copied().collect()
    }
}

/// What a rank waits for in a comparison with others, or has waited for until that failed.
#[derive(Debug, Clone)]
pub(crate) struct Wait {
    /// A description for people.
    pub(crate) what: Arc<str>,
    /// When the wait has failed.
    pub(crate) end: Option<u64>,
}

/// The wait of a comparison, and after how many operations it began.
#[derive(Debug, Default)]
struct Compared {
    wait: Mutex<Option<(u64, Wait)>>,
    /// Whether there is one. Read after each comparison.
    is_set: AtomicBool,
}

impl Compared {
    fn lock(&self) -> MutexGuard<'_, Option<(u64, Wait)>> {
        self.wait.lock()
    }

    fn set(&self, after: u64, what: Arc<str>) {
        *self.lock() = Some((after, Wait { what, end: None }));
        self.is_set.store(true, Ordering::Relaxed);
    }

    /// The wait has failed now.
    fn end(&self) {
        self.lock().iter_mut().for_each(|(_, wait)| wait.end = Some(clock::tick()));
    }

    /// Forgets the wait. Called by the thread that has set it, or by one that has its lock since.
    #[inline]
    fn clear(&self) {
        if self.is_set.load(Ordering::Relaxed) {
            self.is_set.store(false, Ordering::Relaxed);
            *self.lock() = None;
        }
    }

    /// The wait, if it began after so many operations.
    fn get(&self, after: u64) -> Option<Wait> {
        let wait = self.lock().clone();
        wait.filter(|(number, _)| *number == after).map(|(_, wait)| wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_issued_more_than_a_rank_that_ends_waits_for_it() {
        let of = |collectives, messages: &[[u64; 2]]| Totals { collectives, messages: messages.to_vec() };
        let own = of(3, &[[0, 0], [2, 1]]);
        assert!(!own.waits_for(0, 1, &of(3, &[[1, 2], [0, 0]])));
        assert!(!own.waits_for(0, 1, &of(4, &[[5, 2], [0, 0]])));
        assert!(own.waits_for(0, 1, &of(2, &[[1, 2], [0, 0]])));
        // It has sent two, of which one was received.
        assert!(own.waits_for(0, 1, &of(3, &[[1, 1], [0, 0]])));
        assert!(own.waits_for(0, 1, &of(3, &[[0, 2], [0, 0]])));
        assert!(own.waits_for(0, 1, &of(3, &[])));
        assert!(!of(3, &[]).waits_for(0, 1, &of(3, &[])));
    }

    #[test]
    fn a_failed_wait_is_kept_until_the_next_succeeds() {
        let compared = Compared::default();
        compared.clear();
        assert!(compared.get(0).is_none());
        compared.set(3, "one".into());
        assert!(compared.get(3).is_some_and(|wait| wait.end.is_none()));
        assert!(compared.get(4).is_none());
        compared.end();
        assert!(compared.get(3).is_some_and(|wait| &*wait.what == "one" && wait.end.is_some()));
        compared.set(3, "two".into());
        assert!(compared.get(3).is_some_and(|wait| &*wait.what == "two" && wait.end.is_none()));
        compared.end();
        compared.clear();
        assert!(compared.get(3).is_none());
    }
}

//! The entries of a dump: what a rank has issued, and the points that it has come to, in their order.

use super::entry::{Entry, Stage};
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::issued::Point;
use crate::nccl::rank::recent::Record;
use crate::nccl::rank::state::CommState;
use crate::nccl::validate::operation;

/// What somebody has seen to be done.
pub(super) enum Seen {
    /// All of it: the communicator was closed in good order.
    All,
    /// On each stream, by its serial number, up to this operation.
    UpTo(Vec<(u64, u64)>),
    /// Nothing is known while somebody is inside.
    Unknown,
}

impl Seen {
    pub(super) fn of(inner: &Inner) -> Self {
        if matches!(inner.state(), CommState::Closing | CommState::Closed) {
            return Self::All;
        }
        inner.try_lock().map_or(Self::Unknown, |guard| Self::UpTo(guard.works.seen()))
    }

    fn is_done(&self, record: &Record) -> bool {
        match self {
            Self::All => true,
            Self::UpTo(all) => all.iter().any(|(stream, number)| *stream == record.stream && record.number <= *number),
            Self::Unknown => false,
        }
    }

    /// The first operation that is not known to be done, and the last one, if there are any. Who comes to a point is inside as long as it
    /// waits there.
    pub(super) fn open(&self, records: &[Record]) -> Option<(u64, u64)> {
        let knows = !matches!(self, Self::Unknown);
        let is_open = |record: &&Record| !knows || !operation::is_point(record.head) && !self.is_done(record);
        let mut open = records.iter().filter(is_open).map(|record| record.number);
        open.next().map(|first| (first, open.next_back().unwrap_or(first)))
    }
}

/// Operations and points, the oldest first.
pub(super) fn entries(inner: &Inner, records: &[Record], seen: &Seen) -> Vec<Entry> {
    // In this order: what is given to NCCL by now was inside before, if it was not given then.
    let (visit, visitor, given) = (inner.visit(), inner.visitor(), inner.issued.number());
    let is_inside = |record: &Record| visit % 2 == 1 && visit as u16 == record.visit;
    let stage = |record: &Record| match (record.number <= given, is_inside(record)) {
        (true, _) if seen.is_done(record) => Stage::Done,
        (true, _) => Stage::Issued,
        (false, true) => Stage::Inside,
        (false, false) => Stage::Waits,
    };
    // A point is written down under the number of the operation that comes after it, too.
    let (written, operations): (Vec<_>, Vec<_>) = records.iter().partition(|record| operation::is_point(record.head));
    let points = inner.issued.points();
    // Of points only the last can be under way: NCCL is inside with it, or with something else for the same method.
    let for_point = |point: &Point| {
        let is_it = written.iter().any(&is_inside) || visitor.is_some_and(|(of, _)| of == point.operation);
        is_it && !operations.iter().any(&is_inside)
    };
    let inside = points.last().filter(|point| for_point(point)).map(|point| point.sequence);
    let stage_of = |sequence| if inside == Some(sequence) { Stage::Inside } else { Stage::Done };
    let points = points.iter().map(|point| (point.sequence, point.when, Entry::point(point, stage_of(point.sequence))));
    let operations = operations.into_iter().map(|record| {
        let sequence = Some(record.sequence).filter(|number| *number > 0);
        let among_points = sequence.filter(|_| operation::peer(record.head).is_none());
        (among_points, record.when, Entry::of(&record, sequence, stage(&record)))
    });
    in_order(operations.collect(), points)
}

/// Operations as they were issued, and points as ranks come to them: those of both that have numbers in one sequence by these, and what has
/// none by its time, as far as that does not contradict. Times repeat, and clocks are set.
fn in_order<T>(operations: Vec<(Option<u64>, u64, T)>, points: impl Iterator<Item = (u64, u64, T)>) -> Vec<T> {
    // Of what comes next in the sequence, for each operation.
    let mut next = u64::MAX;
    let mut bounds: Vec<_> = operations
        .iter()
        .rev()
        .map(|(sequence, ..)| {
            next = sequence.unwrap_or(next);
            next
        })
        .collect();
    bounds.reverse();
    let (mut points, mut all) = (points.peekable(), Vec::new());
    for ((sequence, when, operation), bound) in operations.into_iter().zip(bounds) {
        let comes_before = |(number, time, _): &(u64, u64, T)| *number < bound && (sequence.is_some() || *time <= when);
        while let Some((.., point)) = points.next_if(comes_before) {
            all.push(point);
        }
        all.push(operation);
    }
    all.extend(points.map(|(.., point)| point));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_before_times() {
        let order = |operations: &[(Option<u64>, u64, &'static str)], points: &[(u64, u64, &'static str)]| {
            in_order(operations.to_vec(), points.iter().copied()).join(" ")
        };
        assert_eq!(order(&[], &[(1, 5, "a"), (2, 5, "b")]), "a b");
        // All within one tick.
        assert_eq!(
            order(&[(Some(2), 5, "2"), (Some(4), 5, "4")], &[(1, 5, "a"), (3, 5, "b"), (5, 5, "c")]),
            "a 2 b 4 c"
        );
        // The clock was set back.
        assert_eq!(order(&[(Some(2), 9, "2"), (Some(4), 3, "4")], &[(1, 8, "a"), (3, 2, "b")]), "a 2 b 4");
        // A message has no number among collectives: its time counts, but for what comes behind the next of them.
        let message = |time| [(Some(2), 5, "2"), (None, time, "m"), (Some(4), 9, "4")];
        let points = [(1, 1, "a"), (3, 6, "b"), (5, 2, "c")];
        assert_eq!(order(&message(7), &points), "a 2 b m 4 c");
        assert_eq!(order(&message(5), &points), "a 2 m b 4 c");
        assert_eq!(order(&message(99), &points), "a 2 b m 4 c");
    }
}

//! Finds out whether a checked communicator needs a rank for the work that it waits for. If it does
//! not, the death of that rank is no reason to end.
//!
//! A message needs the rank at its other end. Every other operation needs all ranks. An operation
//! that is no longer recorded counts as one that needs all ranks.

use super::left_ranks::check_idle;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::recent::{KEPT, Record};
use crate::nccl::validate::operation;
use crate::nccl::validate::over_exchange::this_rank::OverExchange;

/// Whether `inner` needs `rank` for one of its operations up to number `last`, the one that is waited
/// for. On the stream of that one, all up to number `done` are known to be done.
pub(crate) fn on_device(inner: &Inner, rank: usize, done: u64, last: u64) -> bool {
    (done + 1..=last).any(|number| inner.recent.get(number).is_none_or(|record| needs(&record, rank)))
        || on_other_streams(inner, rank, done)
}

/// Whether it needs `rank` for an operation up to number `done` on another stream. NCCL does the
/// operations of a communicator in their order, whatever their streams.
fn on_other_streams(inner: &Inner, rank: usize, done: u64) -> bool {
    let records = inner.recent.all().take_while(|record| record.number <= done);
    let needed: Vec<_> = records.filter(|record| needs(record, rank)).collect();
    if needed.is_empty() {
        return false;
    }
    let Some((streams, seen)) = inner.try_lock().map(|guard| (guard.streams.all().to_vec(), guard.works.seen())) else {
        return false;
    };
    // An operation may be done without a wait for it. Those on an idle stream are.
    let busy = streams.into_iter().filter(|stream| !check_idle(stream).unwrap_or(true));
    let busy: Vec<_> = busy.map(|stream| stream.serial()).collect();
    let is_done = |record: &Record| {
        let seen = seen.iter().find(|(stream, _)| *stream == record.stream);
        !busy.contains(&record.stream) || seen.is_some_and(|(_, last)| record.number <= *last)
    };
    !needed.iter().all(is_done)
}

/// Whether `inner` needs `rank` for what NCCL does in the visit with this number, which still goes
/// on.
pub(crate) fn inside(inner: &Inner, checked: &OverExchange, rank: usize, visit: u64) -> bool {
    if checked.spares(rank) {
        return false;
    }
    let last = inner.recent.last();
    let records = (0..KEPT).map_while(|back| inner.recent.get(last.checked_sub(back)?));
    let (mut known, mut needed) = (0, false);
    for record in records.take_while(|record| record.visit == visit as u16) {
        known += 1;
        needed |= needs(&record, rank);
    }
    // No record belongs to the visit, or more operations do than are recorded.
    needed || known == 0 || known == KEPT
}

fn needs(record: &Record, rank: usize) -> bool {
    operation::peer(record.head).is_none_or(|(_, peer)| peer == rank)
}

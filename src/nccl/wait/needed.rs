//! Which ranks a checked communicator needs for what it waits for: whether the death of one matters.
//!
//! A message needs the other end of it, everything else all ranks. So does what is forgotten, as nobody knows what it was.

use crate::nccl::agree::checked::Checked;
use crate::nccl::agree::recent::{KEPT, Record};
use crate::nccl::agree::signature;
use crate::nccl::state::inner::Inner;

/// Whether `inner` needs `rank` for one of its operations after number `done`, up to number `last`.
pub(crate) fn on_device(inner: &Inner, rank: usize, done: u64, last: u64) -> bool {
    (done + 1..=last).any(|number| inner.recent.get(number).is_none_or(|record| needs(&record, rank)))
}

/// Whether `inner` needs `rank` for what NCCL does in the visit with this number, which goes on.
pub(crate) fn inside(inner: &Inner, checked: &Checked, rank: usize, visit: u64) -> bool {
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
    // It launches nothing that is known, or more than is kept.
    needed || known == 0 || known == KEPT
}

fn needs(record: &Record, rank: usize) -> bool {
    signature::peer(record.head).is_none_or(|(_, peer)| peer == rank)
}

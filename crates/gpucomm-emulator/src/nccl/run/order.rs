//! In which order ranks use communicators that share their resources, or a device.

use std::sync::atomic::Ordering;

use crate::meet::segment::Segment;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::shared::{ORDERS, Shared};
use crate::report;
use crate::settings::settings;

/// One more collective of `comm`.
pub(super) fn check(comm: &Comm) {
    let number = comm.resources.collectives.fetch_add(1, Ordering::Relaxed) + 1;
    let Ok(segment) = comm.segment() else { return };
    check_sharers(comm, segment, number);
    check_device(comm, segment, number);
}

/// Its ranks come to it after the same collectives of those that it was split off from and shares its resources with. Else two operations
/// meet in NCCL's channels, and each takes what belongs to the other, or waits for ever.
fn check_sharers(comm: &Comm, segment: &Segment, number: u64) {
    let Some(order) = comm.resources.order() else { return };
    let orders = |rank: usize| &segment.own(rank).orders[(number % ORDERS as u64) as usize];
    // Whoever comes second sees the other.
    let word = number << 32 | u64::from(order);
    orders(comm.rank).store(word, Ordering::SeqCst);
    let others = (0..comm.size).map(|rank| (rank, orders(rank).load(Ordering::SeqCst)));
    let odd = others.into_iter().find(|(_, theirs)| theirs >> 32 == number & u64::from(u32::MAX) && *theirs != word);
    if let Some((rank, _)) = odd {
        report::violation(format!(
            "ranks {} and {rank} use communicators that share their resources in different orders: they come to collective #{number} of one \
             that was split off after different collectives of what it was split off from",
            comm.rank
        ));
    }
}

/// Its ranks come to it after the same collectives of other communicators that they have on their devices. Else a kernel of one waits on
/// this device for another rank, whose kernel waits there behind one that waits for this device: for ever, where a device has no room for
/// both. NCCL's documentation demands one order; with small kernels it goes well, so this is told, and a violation only on demand.
fn check_device(comm: &Comm, segment: &Segment, number: u64) {
    let here = comm.neighbours();
    if here[0].is_none() {
        return;
    }
    let all = |rank: usize| &segment.own(rank).neighbours[(number % ORDERS as u64) as usize];
    let word = |count: u64| number << 32 | count & u64::from(u32::MAX);
    for (place, (nonce, count)) in all(comm.rank).iter().zip(here.into_iter().flatten()) {
        // Who reads the number sees whose it is.
        place[1].store(nonce, Ordering::SeqCst);
        place[0].store(word(count), Ordering::SeqCst);
    }
    // Other ranks of the same communicator may be on this device: those do not come in an order.
    for (nonce, count) in here.into_iter().flatten().filter(|(nonce, _)| *nonce != segment.nonce()) {
        for rank in (0..comm.size).filter(|&rank| rank != comm.rank) {
            let shown = all(rank).iter().map(|place| place.each_ref().map(|word| word.load(Ordering::SeqCst)));
            let mut of_same =
                shown.filter(|[word, whose]| *whose == nonce && word >> 32 == number & u64::from(u32::MAX));
            let Some([theirs, _]) = of_same.next().filter(|[theirs, _]| *theirs != word(count)) else { continue };
            let text = format!(
                "communicators {:04x} and {:04x} are used in different orders on the devices of ranks {} and {rank} of the first: its \
                 collective #{number} comes there after {count} and {} collectives of the second",
                segment.nonce() & 0xffff,
                nonce & 0xffff,
                comm.rank,
                theirs & u64::from(u32::MAX)
            );
            if settings().order {
                report::violation(text);
            } else if !comm.told_order.swap(true, Ordering::Relaxed) {
                report::line(format!("deadlock? {text}"));
            }
        }
    }
}

//! In which order ranks use communicators that share their resources.

use std::sync::atomic::Ordering;

use crate::emulator::nccl::state::comm::Comm;
use crate::emulator::nccl::state::shared::{ORDERS, Shared};
use crate::emulator::report;

/// One more collective of `comm`: its ranks come to it after the same collectives of those that it was split off from and shares its
/// resources with. Else two operations meet in NCCL's channels, and each takes what belongs to the other, or waits for ever.
pub(super) fn check(comm: &Comm) {
    let number = comm.resources.collectives.fetch_add(1, Ordering::Relaxed) + 1;
    let (Some(order), Ok(segment)) = (comm.resources.order(), comm.segment()) else { return };
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

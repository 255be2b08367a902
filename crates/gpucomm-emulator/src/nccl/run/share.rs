//! One rank's share of a collective operation: which bytes it reads from whom, and writes to whom.
//!
//! The work is divided so that each byte of input is read once, and each byte of output written once, whoever owns it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;

use crate::nccl::basics::kind::Kind;
use crate::nccl::bytes::reduce;
use crate::nccl::bytes::transfer::Way;
use crate::nccl::requests::operation::Operation;

/// The buffers of one rank, as pointers of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) send: *mut u8,
    pub(crate) recv: *mut u8,
    pub(crate) scalar: u64,
}

/// The part of `0..total` that is `rank`'s of `ranks`: equal parts, but no page is divided.
fn slice(total: usize, rank: usize, ranks: usize) -> Range<usize> {
    let part = total.div_ceil(ranks).next_multiple_of(PAGE);
    (rank * part).min(total)..((rank + 1) * part).min(total)
}

const PAGE: usize = 4096;

/// Does the share of `rank`.
///
/// # Safety
/// The buffers of all peers hold what the operation says, stay valid meanwhile, and the peers do nothing with them but
/// their shares of this same operation.
pub(crate) unsafe fn run(operation: &Operation, rank: usize, peers: &[Peer]) {
    let ranks = peers.len();
    let bytes = operation.bytes();
    let root = &peers[operation.peer];
    let me = &peers[rank];
    let way = Way::for_total(bytes * writes(operation.kind, ranks));
    let reduction = operation.reduction();
    // SAFETY: all offsets below stay inside the buffers: `slice` lies in 0..bytes, and rank * bytes lies in a buffer of
    // `ranks` parts. The caller vouches for the buffers.
    unsafe {
        match operation.kind {
            Kind::AllReduce | Kind::Reduce => {
                let part = slice(bytes, rank, ranks);
                let summed = from(first(operation, ranks), peers);
                let sources: Vec<_> = summed.clone().map(|peer| peer.send.add(part.start).cast_const()).collect();
                let scalars: Vec<_> = summed.map(|peer| peer.scalar).collect();
                let targets: Vec<_> = match operation.kind {
                    Kind::AllReduce => peers.iter().map(|peer| peer.recv.add(part.start)).collect(),
                    _ => vec![root.recv.add(part.start)],
                };
                reduce::run(reduction, &sources, &scalars, &targets, part.len() / operation.size, way);
            }
            Kind::ReduceScatter => {
                let summed = from(first(operation, ranks), peers);
                let sources: Vec<_> = summed.clone().map(|peer| peer.send.add(rank * bytes).cast_const()).collect();
                let scalars: Vec<_> = summed.map(|peer| peer.scalar).collect();
                reduce::run(reduction, &sources, &scalars, &[me.recv], operation.count, way);
            }
            Kind::Broadcast => {
                let part = slice(bytes, rank, ranks);
                let targets: Vec<_> = peers.iter().map(|peer| peer.recv.add(part.start)).collect();
                way.copy_to_all(root.send.add(part.start), &targets, part.len());
            }
            Kind::AllGather => {
                let targets: Vec<_> = peers.iter().map(|peer| peer.recv.add(rank * bytes)).collect();
                way.copy_to_all(me.send, &targets, bytes);
            }
            _ => {}
        }
    }
    way.finish();
}

/// All peers, from one on.
fn from(first: usize, peers: &[Peer]) -> impl Iterator<Item = &Peer> + Clone {
    peers[first..].iter().chain(&peers[..first])
}

/// The rank at which sums begin.
fn first(operation: &Operation, ranks: usize) -> usize {
    // Its keys are others each time.
    if operation.any_order { RandomState::new().build_hasher().finish() as usize % ranks } else { 0 }
}

/// Does an operation of one rank.
///
/// # Safety
/// The buffers hold what the operation says, stay valid meanwhile, and nobody else touches them.
pub(super) unsafe fn alone(operation: &Operation, send: *mut u8, recv: *mut u8, scalar: u64) {
    let way = Way::for_total(operation.bytes());
    // SAFETY: the caller vouches for the buffers.
    unsafe {
        if operation.kind.reduces() {
            reduce::run(operation.reduction(), &[send.cast_const()], &[scalar], &[recv], operation.count, way);
        } else {
            way.copy(send, recv, operation.bytes());
        }
    }
    way.finish();
}

/// How many parts all ranks together write.
fn writes(kind: Kind, ranks: usize) -> usize {
    match kind {
        Kind::Reduce => 1,
        Kind::AllGather => ranks * ranks,
        _ => ranks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_everything_once() {
        for total in [0, 1, 5, 4096, 4097, 100_000, 1 << 20] {
            for ranks in 1..=5 {
                let mut next = 0;
                for rank in 0..ranks {
                    let part = slice(total, rank, ranks);
                    assert!(part.is_empty() || part.start == next);
                    next = next.max(part.end);
                }
                assert_eq!(next, total);
            }
        }
    }
}

//! Which collectives a group holds: ranks must agree on that too.
//!
//! NCCL sorts the collectives of a group by their size and launches neighbours together. A rank that has two in one group and a
//! rank that issues the same two one after the other run different kernels against each other: the data is wrong, or they
//! wait for ever. Messages may be grouped as one likes, and so may what NCCL makes of messages.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::meet::segment::Segment;
use crate::nccl::requests::operation::Operation;
use crate::nccl::requests::signature::{SIGNATURE_WORDS, Signature};
use crate::nccl::state::comm::Comm;
use crate::nccl::state::shared::{GROUP_WORDS, Own, Shared};
use crate::report;

/// How many collectives of a group are named; of others only the number and a digest are compared.
const NAMED: usize = 8;

// In these words a rank shows the group that it is at: how many collectives, their digest, and the first of them.
const _: () = assert!(GROUP_WORDS == 2 + NAMED * SIGNATURE_WORDS);

/// Shows the others what the group holds whose operations this rank comes to now.
///
/// All ranks have compared the last one, since none parts from a collective before all have.
pub(crate) fn show(comm: &Comm, segment: &Segment, operations: &[Operation]) {
    let group = &segment.own(comm.rank).group;
    let (mut number, mut digest) = (0, 0u64);
    for operation in operations.iter().filter(|operation| !operation.kind.by_messages()) {
        let signature = Signature::of(operation);
        if number < NAMED {
            signature.put(&group[2 + number * SIGNATURE_WORDS..]);
        }
        number += 1;
        for word in signature.words() {
            digest = (digest ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
    }
    if number > 0 {
        group[0].store(number as u64, Ordering::Relaxed);
        group[1].store(digest, Ordering::Relaxed);
    }
}

/// Whether all ranks, which have come to `operation`, have come to it in groups of the same collectives.
pub(crate) fn agree(comm: &Comm, segment: &Segment) -> bool {
    let shown = |rank: usize| segment.own(rank).group.each_ref().map(|word| word.load(Ordering::Relaxed));
    let first = shown(0);
    let listed = |words: &[u64; GROUP_WORDS]| 2 + SIGNATURE_WORDS * NAMED.min(words[0] as usize);
    let odd = (1..comm.size).find(|&rank| {
        let theirs = shown(rank);
        theirs[..listed(&theirs)] != first[..listed(&first)]
    });
    let Some(odd) = odd else { return true };
    report::violation(format!(
        "ranks group their collectives differently: rank {odd} has {}, expected {}, as rank 0",
        describe(segment.own(odd)),
        describe(segment.own(0))
    ));
    false
}

fn describe(rank: &Own) -> String {
    let number = rank.group[0].load(Ordering::Relaxed) as usize;
    let name =
        |words: &[AtomicU64]| Signature::read(words).map_or("nonsense".to_owned(), |signature| signature.describe());
    let mut names: Vec<String> = rank.group[2..].chunks(SIGNATURE_WORDS).take(number).map(name).collect();
    if number > NAMED {
        names.push(format!("and {} more", number - NAMED));
    }
    format!("[{}] in one group", names.join("; "))
}

//! Groups that go in parts.
//!
//! A group of more launches than may be on their way goes in parts, each a group of NCCL. That changes nothing: NCCL runs
//! the collectives of a group before its messages, cuts both into kernels one after the other, and takes of the messages one
//! to and one from each peer before the next. So the parts are cut: collectives first, by what the ranks have compared,
//! hence at the same places; then messages, as many of each peer to a part. Where ranks cut messages at different places,
//! nothing is lost either: NCCL's own kernels are cut where the arguments of each rank are full.
//!
//! Communicators that share their resources have parts of their own, one communicator after the other, in the order of their lineages,
//! which is the same for all ranks: they use the same channels, on which what comes first must do so everywhere.

use super::launch_cost::{MOST, Weight};
use crate::nccl::calls::call::Call;
use crate::nccl::rank::inner::Inner;
use crate::nccl::validate::pair::End;

/// Whether some of these, which are in the order of their locks, share their resources.
#[inline]
pub(crate) fn is_shared(inners: &[&Inner]) -> bool {
    inners.windows(2).any(|pair| pair[0].order == pair[1].order)
}

/// To which part of a group each call belongs.
pub(crate) struct Parts {
    of: Vec<u32>,
    count: u32,
}

impl Parts {
    /// Of the calls of a group of these communicators.
    #[cold]
    pub(crate) fn of(calls: &[Call<'_>], inners: &[&Inner]) -> Self {
        let mut of = vec![0; calls.len()];
        let shared = is_shared(inners);
        let mut inners = inners.to_vec();
        inners.sort_unstable_by(|one, other| one.local_ranks.lineage.cmp(&other.local_ranks.lineage));
        let (mut base, mut end, mut lineage) = (0, 0, None);
        for inner in inners {
            if shared && lineage.replace(&inner.local_ranks.lineage) != Some(&inner.local_ranks.lineage) {
                base = end;
            }
            let own = || calls.iter().enumerate().filter(|(_, call)| call.comm.id == inner.id && call.count > 0);
            let (mut part, mut weight) = (base, Weight::new(inner.size));
            for (at, call) in own().filter(|(_, call)| call.kind.message().is_none()) {
                weight.add(call);
                if weight.launches() > MOST {
                    part += 1;
                    weight = Weight::new(inner.size);
                    weight.add(call);
                }
                of[at] = part;
            }
            // Together with the last collectives, messages might be too many.
            let first = if weight.launches() > 0 { part + 1 } else { base };
            let rounds = Weight::rounds(inner.size, MOST);
            let mut before = vec![0; 2 * inner.size];
            for (at, call) in own() {
                if let Some((end, peer)) = call.kind.message() {
                    let before: &mut u64 = &mut before[2 * peer + usize::from(end == End::Receiver)];
                    of[at] = first + (*before / rounds) as u32;
                    *before += 1;
                }
            }
            end = own().map(|(at, _)| of[at] + 1).fold(end, u32::max);
        }
        let count = of.iter().max().map_or(1, |last| last + 1);
        Self { of, count }
    }

    /// The calls of each part, one part after the other.
    pub(crate) fn each<'a>(&self, calls: &[Call<'a>]) -> impl Iterator<Item = Vec<Call<'a>>> {
        let part = |part| calls.iter().zip(&self.of).filter(move |(_, of)| **of == part).map(|(call, _)| call.clone());
        (0..self.count).map(move |number| part(number).collect())
    }
}

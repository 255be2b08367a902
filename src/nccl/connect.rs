//! Calls in which NCCL connects the ranks of a clique: the first message to or from a peer, the first collective of its
//! class. The ranks meet before those; see [`meeting`](super::meeting).

use smallvec::SmallVec;

use super::agreement::{bytes, class, collectives};
use super::call::{Call, Kind};
use super::inner::{Family, Inner};
use super::meeting::{Need, Peers};
use super::pair::End;
use super::patience::Patience;
use crate::error::Result;

/// What one communicator connects.
struct First<'a> {
    inner: &'a Inner,
    family: &'a Family,
    need: Need,
    classes: SmallVec<[u64; 4]>,
    /// The messages that collectives consist of.
    exchanges: Peers,
}

impl<'a> First<'a> {
    /// Of calls that were agreed on. `None` where they connect nothing.
    fn of(calls: &[Call<'_>], inner: &'a Inner) -> Option<Self> {
        let family = inner.family.as_ref().filter(|_| inner.size > 1)?;
        let past = family.ledger.past(inner.rank);
        let (mut need, mut classes, mut exchanges) = (Need::default(), SmallVec::new(), Peers::default());
        let count = collectives(calls, inner).count();
        let all = collectives(calls, inner).map(bytes).sum();
        for call in calls.iter().filter(|call| call.comm.id == inner.id && call.count > 0) {
            match call.kind.message() {
                Some((end, peer)) if peer != inner.rank && !past.knows_peer(peer, end) => need.peers.add(peer, end),
                Some(_) => {}
                None => {
                    let class = class(call, count, all);
                    if !past.knows_class(class) {
                        need.collective = Some(family.ledger.collectives().passed(inner.rank) - 1);
                        classes.push(class);
                        exchange(call.kind, inner, &mut exchanges);
                    }
                }
            }
        }
        (!need.is_empty()).then_some(Self { inner, family, need, classes, exchanges })
    }

    /// All are there.
    fn connect(&self, besides: &Peers) {
        let past = self.family.ledger.past(self.inner.rank);
        self.classes.iter().for_each(|&class| past.connect_class(class));
        let peers = self.need.peers.iter().chain(self.exchanges.iter()).chain(besides.iter());
        peers.for_each(|(peer, end)| past.connect_peer(peer, end));
    }

    /// Who has not come.
    fn absent(&self) -> String {
        let ledger = &self.family.ledger;
        let missing = ledger.meeting().missing(self.inner.rank);
        let missing: Vec<_> = missing.into_iter().map(|rank| ledger.whereabouts(rank)).collect();
        format!(
            "rank {} does this for the first time, for which the ranks meet, and {}. One thread that drives several ranks \
             has to put them into one group",
            self.inner.rank,
            missing.join("; ")
        )
    }
}

/// The messages of this rank in a collective that consists of messages.
fn exchange(kind: Kind, inner: &Inner, peers: &mut Peers) {
    let (rank, all) = (inner.rank, 0..inner.size);
    let mut rooted = |root: usize, at_root: End| match rank == root {
        true => all.clone().for_each(|peer| peers.add(peer, at_root)),
        false => peers.add(root, at_root.other()),
    };
    match kind {
        #[cfg(nccl_ge_2_28)]
        Kind::Gather { root } => rooted(root, End::Receiver),
        #[cfg(nccl_ge_2_28)]
        Kind::Scatter { root } => rooted(root, End::Sender),
        #[cfg(nccl_ge_2_28)]
        Kind::AllToAll => {
            for peer in all {
                peers.add(peer, End::Sender);
                peers.add(peer, End::Receiver);
            }
        }
        _ => {
            let _ = &mut rooted;
        }
    }
}

/// What has to be connected beside what the calls connect: the communicator, and the messages.
pub(crate) type Besides = SmallVec<[(u64, Peers); 1]>;

/// Waits until all ranks have come that are connected by these calls, which were agreed on. The locks of `members`, their
/// communicators, are held. `in_parts` says that not all calls are made at once.
///
/// # Errors
/// What ends the clique.
#[cold]
pub(crate) fn meet(calls: &[Call<'_>], members: &[&Inner], operation: &'static str, in_parts: bool) -> Result<Besides> {
    let firsts = members.iter().filter_map(|inner| {
        let mut first = First::of(calls, inner)?;
        first.need.ahead = in_parts;
        Some(first)
    });
    wait(firsts.collect(), members, operation)
}

/// The same for the registration of a window as collective number `entry` of each communicator.
#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
pub(crate) fn meet_at(entry: u64, members: &[&Inner], operation: &'static str) -> Result<()> {
    let mut firsts = SmallVec::new();
    for &inner in members {
        if let Some(family) = inner.family.as_ref().filter(|_| inner.size > 1) {
            let need = Need { collective: Some(entry), ..Need::default() };
            firsts.push(First { inner, family, need, classes: SmallVec::new(), exchanges: Peers::default() });
        }
    }
    wait(firsts, members, operation).map(drop)
}

fn wait(mut firsts: SmallVec<[First<'_>; 4]>, members: &[&Inner], operation: &'static str) -> Result<Besides> {
    for first in &firsts {
        first.family.ledger.meeting().come(first.inner.rank, first.need.clone());
    }
    let mut more = Besides::new();
    let mut patience = Patience::default();
    loop {
        firsts.retain(|first| match first.family.ledger.meeting().go(first.inner.rank) {
            Some(besides) => {
                first.connect(&besides);
                if !besides.is_empty() {
                    more.push((first.inner.id, besides));
                }
                false
            }
            None => true,
        });
        let Some(first) = firsts.first() else { return Ok(more) };
        if let Err(error) = patience.wait(operation, members, || first.absent()) {
            firsts.iter().for_each(|first| first.family.ledger.meeting().leave(first.inner.rank));
            return Err(error);
        }
    }
}

//! The communicators whose locks a group holds.

use crate::nccl::rank::guarded::Guarded;
use crate::nccl::rank::inner::Inner;
use crate::sys;

/// A communicator that takes part in a group, and whose lock is held.
pub(crate) struct Member<'g, 'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) guarded: &'g mut Guarded,
    pub(crate) handle: sys::ncclComm_t,
}

/// Whether the communicators have one lineage, so that their calls may be made in any order.
#[inline]
pub(super) fn have_one_lineage(members: &[Member<'_, '_>]) -> bool {
    members.windows(2).all(|pair| pair[0].inner.local_ranks.lineage == pair[1].inner.local_ranks.lineage)
}

/// Sorts by communicator, in the order of their lineages, which all ranks share. NCCL connects and launches the communicators of a group
/// in the order in which they come first there. If ranks had different orders, they would wait for each other.
#[inline]
pub(super) fn in_one_order<T>(what: &mut [T], members: &[Member<'_, '_>], id: impl Fn(&T) -> u64) {
    let lineage = |one: &T| &members[place(id(one), members)].inner.local_ranks.lineage;
    if members.len() > 1 && !what.is_sorted_by(|one, other| lineage(one) <= lineage(other)) {
        what.sort_by(|one, other| lineage(one).cmp(lineage(other)));
    }
}

/// Returns the index of a communicator among the members. It is one of them.
#[inline]
pub(super) fn place(communicator: u64, members: &[Member<'_, '_>]) -> usize {
    let others = members.iter().enumerate().skip(1);
    others.filter(|(_, member)| member.inner.id == communicator).map(|(at, _)| at).next().unwrap_or(0)
}

//! Reductions that are to be alone in their group.
//!
//! NCCL divides the channels of a communicator among the collectives of a group. It merges those of one operation and similar size, and
//! chooses the algorithm by the merged size. So the order in which one is summed depends on the others.

use super::submit::inners_of;
use crate::error::{Error, Result};
use crate::nccl::calls::call::Call;
use crate::nccl::rank::inner::Inner;

/// Refuses other collectives beside a reduction where two runs are to be equal bit by bit. Those that NCCL makes messages of take nothing from it.
pub(crate) fn check_group(calls: &[Call<'_>]) -> Result<()> {
    if calls.len() < 2 || !calls.iter().any(|call| call.comm.local_ranks.is_deterministic()) {
        return Ok(());
    }
    let inners = inners_of(calls);
    inners.iter().filter(|inner| inner.local_ranks.is_deterministic()).try_for_each(|inner| check(calls, inner))
}

fn check(calls: &[Call<'_>], inner: &Inner) -> Result<()> {
    let own = || {
        let in_channels = |call: &&Call<'_>| call.kind.message().is_none() && !call.kind.is_exchange();
        calls.iter().filter(in_channels).filter(|call| call.comm.id == inner.id)
    };
    match own().find(|call| call.kind.redop().is_some()) {
        Some(reduction) if own().count() > 1 => Err(Error::InvalidUsage {
            operation: reduction.operation,
            reason: format!(
                "in a group, a reduction of a deterministic communicator is its only collective, but for all_to_all, gather and scatter: \
                 expected 1, got {}, of which each may have another sum than alone",
                own().count()
            ),
        }),
        _ => Ok(()),
    }
}

//! Makes communicators of others, and suspends and resumes them. All ranks come to each of these
//! calls.

#[cfg(nccl_ge_2_27)]
mod across_processes;
pub(crate) mod child_config;
#[cfg(nccl_ge_2_29)]
pub(crate) mod grow;
#[cfg(nccl_ge_2_27)]
pub(crate) mod regroup;
pub(crate) mod split;
#[cfg(nccl_ge_2_29_7)]
pub(crate) mod suspend;

use crate::deadline::Deadline;
use crate::error::Error;
use crate::nccl::lifecycle::abort::{GRACE, abort, start_abort};
use crate::nccl::lifecycle::failed_call;
use crate::nccl::rank::inner::Inner;

/// Aborts `members` after a failure that the other ranks do not know, and on which they wait, but not after a revoke that came before the
/// call was inside NCCL: that leaves communicators of which others can be made. Returns the error for the caller. If the call was
/// `interruptible`, it had begun on active communicators. Then NCCL's error says that a revoke has interrupted it.
fn failed(members: &[&Inner], operation: &'static str, interruptible: bool, error: Error) -> Error {
    let revoked = members.iter().all(|inner| inner.is_revoked());
    // Ranks of other processes may wait for these within NCCL.
    let announce = |error: &Error| members.iter().for_each(|inner| inner.validation.announce_end(inner.rank, error));
    if revoked && matches!(error, Error::Revoked { .. }) {
        announce(&error);
        return error;
    }
    let interrupted = revoked && interruptible && matches!(error, Error::Nccl { .. });
    let refusal = members.iter().filter(|_| interrupted).find_map(|inner| inner.refusal(operation));
    if let Some(refusal) = refusal {
        // NCCL's parent keeps what the interrupted call has counted and sent. A later call would take it for its own.
        let reason = format!("NCCL was inside {operation} when it was revoked, after which nothing can be made of it");
        let cause = Error::Aborted { operation, reason: reason.into() };
        announce(&cause);
        start_abort(&Inner::cliques_of(members), &cause);
        return refusal;
    }
    if !members.iter().any(|inner| inner.is_revoked() || inner.is_suspended()) {
        return failed_call::end(members, operation, error);
    }
    let _ = abort(&Inner::cliques_of(members), &error, &Deadline::after(GRACE));
    error
}

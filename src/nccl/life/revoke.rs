//! Stopping a communicator without ending it: what was under way has no result, and others can be made of it.

use std::sync::Arc;

use super::abort::one_at_a_time;
use super::interrupt;
use super::interrupt::Interruption;
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::state::inner::Inner;

/// Revokes all ranks of this process of the communicator of `inner`, and waits until all have stopped.
pub(crate) fn revoke(operation: &'static str, inner: &Inner, reason: &str) -> Result<()> {
    outside_of_host_functions(operation)?;
    if inner.household.sharers().is_some() {
        let reason = "it shares its resources, and what stops it stops all that do: abort it".to_owned();
        return Err(Error::InvalidUsage { operation, reason });
    }
    let members = inner.household.members();
    let cause = Error::Revoked { operation, reason: reason.to_owned() };
    let revoked: Vec<_> = {
        let _alone = one_at_a_time();
        // One that was closed cannot be revoked, and the rest of what it was part of cannot go on.
        match inner.refusal(operation) {
            Some(error) if !inner.is_revoked() => return Err(error),
            _ => members.iter().filter(|member| member.revoke(cause.clone())).collect(),
        }
    };
    for member in revoked {
        let stopping = Arc::clone(member);
        member.helper().run(move || stop(&stopping));
    }
    let deadline = Deadline::after(inner.timeout());
    let mut round = 0;
    loop {
        let left = members.iter().find(|member| member.is_revoked() && !member.has_stopped());
        let Some(left) = left else { break };
        if deadline.expired() {
            let detail =
                format!("rank {} is still being stopped: its peers, or work on its device, hold it up", left.rank);
            return Err(deadline.error(operation, detail));
        }
        backoff(round);
        round += 1;
    }
    match inner.refusal(operation) {
        Some(error) if !inner.is_revoked() => Err(error),
        _ => Ok(()),
    }
}

/// Stops `inner`, which was revoked, on its own thread.
fn stop(inner: &Inner) {
    let interruption = Interruption::of(inner);
    let mut round = 0;
    // Who is inside and waits for a peer is woken; who is not leaves by itself.
    while !inner.is_left() && !interruption.is_due() {
        backoff(round);
        round += 1;
    }
    interrupt::revoke(inner);
    inner.set_stopped();
}

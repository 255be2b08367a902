//! Stopping a communicator without ending it: what was under way has no result, and others can be made of it.

use std::sync::Arc;
use std::time::Duration;

use super::abort::{one_at_a_time, start_abort};
use super::interrupt;
use super::interrupt::{BLOCKED, Interruption};
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::state::inner::Inner;

/// How long a stream may take to show that a kernel has left, where nothing is behind it.
const SETTLING: Duration = Duration::from_millis(300);

/// Revokes all ranks of this process of the communicator of `inner`, and waits until all have stopped.
pub(crate) fn revoke(operation: &'static str, inner: &Inner, reason: &str) -> Result<()> {
    outside_of_host_functions(operation)?;
    if inner.household.sharers().is_some() {
        let reason = "it shares its resources, and what stops it stops all that do: abort it".to_owned();
        return Err(Error::InvalidUsage { operation, reason });
    }
    let cause = Error::Revoked { operation, reason: reason.to_owned() };
    let (members, revoked): (Vec<_>, Vec<_>) = {
        let _alone = one_at_a_time();
        // One that was closed cannot be revoked, and the rest of what it was part of cannot go on.
        inner.unfit(operation).or_else(|| inner.asleep(operation)).map_or(Ok(()), Err)?;
        let members = inner.household.stop(&cause);
        let revoked = members.iter().filter(|member| member.revoke(cause.clone())).cloned().collect();
        (members, revoked)
    };
    for member in revoked {
        member.clone().helper().run(move || stop(&member));
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
    inner.unfit(operation).map_or(Ok(()), Err)
}

/// Stops `inner`, which was revoked, on its own thread; aborts it where that is not possible.
fn stop(inner: &Inner) {
    let interruption = Interruption::of(inner);
    // Who is inside and waits for a peer is woken; who is not leaves by itself. All ranks of this process come to that before one is
    // revoked: NCCL frees then what it receives by, and kernels of the others would go on writing there.
    let members = inner.household.members();
    // One that never leaves does not keep the others from being stopped.
    let patience = Deadline::after(2 * BLOCKED);
    let are_left = || members.iter().all(|member| member.is_left());
    until(|| are_left() || interruption.is_due() || (inner.is_left() && patience.expired()));
    let woken = !inner.is_left();
    // NCCL would not wait for launches of such graphs: it takes its flag back and ends its threads, and they run afterwards.
    let mut stopped = launches_are_done(&members).and_then(|()| interrupt::revoke(inner));
    if stopped.is_ok() && woken {
        // What came back from the driver only now may have launched something that nothing stops any more.
        until(|| inner.is_left());
        let deadline = Deadline::after(BLOCKED);
        if !are_idle_within(inner, &deadline) {
            stopped = Err(deadline.error("revoke", format!("rank {} goes on working on its device", inner.rank)));
        }
    } else if stopped.is_ok() {
        // The kernels have left; that the streams are past them shows a little later, unless other work is behind.
        are_idle_within(inner, &Deadline::after(SETTLING));
    }
    match stopped {
        Ok(()) => inner.set_stopped(),
        Err(error) => {
            start_abort(&inner.relatives(), &error);
        }
    }
}

/// Waits for launches of graphs that NCCL knows nothing of, so that none of them is left for it to stop.
///
/// # Errors
/// They go on. The flag of an abort stays, so that stops them.
fn launches_are_done(members: &[Arc<Inner>]) -> Result<()> {
    let deadline = Deadline::after(BLOCKED);
    for inner in members {
        let done = deadline.until(|| Ok(inner.graphs.have_left()?.then_some(())))?;
        let rank = inner.rank;
        let what = || format!("launches of a graph of rank {rank}, which NCCL does not stop as graph_usage is One");
        done.ok_or_else(|| deadline.error("revoke", what()))?;
    }
    Ok(())
}

/// Whether the streams that `inner` was used on have come to their ends before the deadline.
fn are_idle_within(inner: &Inner, deadline: &Deadline) -> bool {
    let streams = inner.lock_within(deadline).map(|guard| guard.streams.all().to_vec());
    let are_idle = || streams.as_ref().is_some_and(|all| all.iter().all(|one| one.is_idle().unwrap_or(true)));
    deadline.until(|| Ok(are_idle().then_some(()))).ok().flatten().is_some()
}

/// Waits, however long that takes.
fn until(is_over: impl Fn() -> bool) {
    let mut round = 0;
    while !is_over() {
        backoff(round);
        round += 1;
    }
}

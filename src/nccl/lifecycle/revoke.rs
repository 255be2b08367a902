//! Revokes communicators: stops their work, which then has no result, and leaves them so that
//! others can be made of them.

use std::sync::Arc;
use std::time::Duration;

use super::abort::{abort_clique, lock_marking};
use super::interrupt::{BLOCKED, Interruption};
use super::{graph_ends, interrupt};
use crate::deadline::{Deadline, wait_until};
use crate::error::{Cause, Error, Result};
use crate::nccl::rank::inner::Inner;
use crate::nccl::raw::outside::outside_of_host_functions;

/// How long a stream may take to show that a kernel has left, if nothing is behind it.
const SETTLING: Duration = Duration::from_millis(300);

/// Revokes the communicator of `inner` on all ranks of this process, and waits until all have
/// stopped.
pub(crate) fn revoke(operation: &'static str, inner: &Inner, reason: &str) -> Result<()> {
    outside_of_host_functions(operation)?;
    if inner.shares_resources() {
        let reason = "it shares its resources, and what stops it stops all that do: abort it".to_owned();
        return Err(Error::InvalidUsage { operation, reason });
    }
    let cause = Error::Revoked { operation, reason: Cause::from(reason).of_rank(inner.rank) };
    let members = {
        let _alone = lock_marking();
        // A rank that was closed cannot be revoked, and the other ranks cannot go on without it.
        inner.ended_error(operation).or_else(|| inner.suspended_error(operation)).map_or(Ok(()), Err)?;
        let members = inner.local_ranks.mark_revoked(&cause);
        for member in members.iter().filter(|member| member.mark_revoked(cause.clone())) {
            let stopped = Arc::clone(member);
            // An abort that marks it from now on frees it after this, on the same thread.
            member.helper().run(move || stop(&stopped));
        }
        members
    };
    let left = || members.iter().find(|member| member.is_revoked() && !member.has_stopped());
    let deadline = Deadline::after(inner.timeout() + graph_ends::patience(&members));
    deadline.wait(|| left().is_none());
    if let Some(left) = left() {
        let detail =
            format!("{} is still being stopped: its peers, or work on its device, hold it up", left.in_words());
        return Err(deadline.error(operation, detail).waited_by(left.rank));
    }
    inner.ended_error(operation).map_or(Ok(()), Err)
}

/// Stops `inner`, which was marked revoked, on its own thread. Aborts it if that fails.
fn stop(inner: &Inner) {
    // The thread of another rank may have freed it.
    if inner.has_ended() {
        return;
    }
    graph_ends::before_revoke(inner);
    let interruption = Interruption::of(inner);
    // A thread inside that waits for a peer is woken. Others leave by themselves. All ranks of this
    // process get that far before one is revoked: NCCL then frees the buffers by which it receives,
    // and kernels of the other ranks would go on writing there.
    let members = inner.local_ranks.ranks();
    // A thread that never leaves does not keep the other ranks from being stopped, unless it launches
    // a kernel later.
    let patience = Deadline::after(2 * BLOCKED);
    let are_left = || members.iter().all(|member| member.is_left());
    let in_driver = || members.iter().any(|member| interrupt::waits_in_driver(member));
    let is_due = || interruption.is_due() || (inner.is_left() && patience.expired());
    wait_until(|| are_left() || (is_due() && !in_driver()));
    let woken = !inner.is_left();
    // NCCL does not wait for launches of graphs that it does not know: it takes its flag back and
    // ends its threads, and they run afterwards.
    let mut stopped = launches_are_done(&members).and_then(|()| interrupt::revoke(inner));
    if stopped.is_ok() && woken {
        // A call that comes back from the driver only now may have launched something that nothing
        // stops any more.
        wait_until(|| inner.is_left());
        let deadline = Deadline::after(BLOCKED);
        if !are_idle_within(inner, &deadline) {
            let detail = format!("{} goes on working on its device", inner.in_words());
            stopped = Err(deadline.error("revoke", detail).waited_by(inner.rank));
        }
    } else if stopped.is_ok() {
        // The kernels have left. The streams show that a little later, unless there is other work
        // behind.
        are_idle_within(inner, &Deadline::after(SETTLING));
    }
    match stopped {
        Ok(()) => inner.set_stopped(),
        Err(error) => abort_clique(inner, &error),
    }
}

/// Waits for launches of graphs that NCCL does not know, and so does not stop.
///
/// # Errors
/// They go on. An abort stops them, as its flag stays.
fn launches_are_done(members: &[Arc<Inner>]) -> Result<()> {
    let deadline = Deadline::after(BLOCKED);
    for inner in members {
        let done = deadline.until(|| Ok(inner.graphs.have_left()?.then_some(())))?;
        let what =
            || format!("launches of a graph of {}, which NCCL does not stop as graph_usage is One", inner.in_words());
        done.ok_or_else(|| deadline.error("revoke", what()).waited_by(inner.rank))?;
    }
    Ok(())
}

/// Waits until the streams of `inner` are idle. Returns false at the deadline.
fn are_idle_within(inner: &Inner, deadline: &Deadline) -> bool {
    let streams = inner.lock_within(deadline).map(|guard| guard.streams.all().to_vec());
    let are_idle = || streams.as_ref().is_some_and(|all| all.iter().all(|one| one.is_idle().unwrap_or(true)));
    deadline.wait(are_idle)
}

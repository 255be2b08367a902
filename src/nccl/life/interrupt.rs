//! Waking a thread that blocks inside NCCL, and stopping a communicator without freeing it.
//!
//! The first operation on a communicator, or the first with a peer, exchanges addresses inside the call, and a peer that
//! never comes leaves it blocked. `ncclCommRevoke` (2.28.7) raises the flag that NCCL and its kernels look at while they
//! wait, waits until the device has left, and frees nothing, so it may be called while a thread is inside. Only a call that
//! really waits may be woken: one that goes on would lose what it uses. With older versions nothing safe can be done, and
//! the call blocks until the peer comes.
//!
//! Nothing may be freed before revoking has returned: it goes on using the communicator when those that it woke have left.
//!
//! Revoking takes the flag back when it is done, and works once. Who is not waiting for a peer then, but comes to that later, out of a
//! slow call of the driver, waits for ever. So a call counts as blocked after several seconds only, also in a clique: there the ranks
//! meet before they connect, so a call waits for a peer only if that one was stopped in between, or in the driver for kernels of this
//! very communicator, which nothing else would stop. What stays: a call that is slower than that, and waits for a peer afterwards,
//! never returns, and its communicator is never freed.

#[cfg(nccl_ge_2_28_7)]
use std::sync::mpsc;
use std::time::Duration;

#[cfg(nccl_ge_2_28_7)]
use crate::cuda::Stream;
use crate::deadline::Deadline;
use crate::error::Result;
#[cfg(nccl_ge_2_28_7)]
use crate::nccl::state::helper::aside;
use crate::nccl::state::inner::Inner;

/// How long a call takes before it counts as blocked: longer than what the driver does in a first call, and less than
/// [`GRACE`](crate::nccl::life::abort::GRACE), so that an abort comes through within that.
pub(crate) const BLOCKED: Duration = Duration::from_secs(5);

/// How long kernels take to leave that were told to.
#[cfg(nccl_ge_2_28_7)]
const LEAVING: Duration = Duration::from_millis(300);

/// Whether what NCCL does can be stopped.
pub(super) const IS_POSSIBLE: bool = cfg!(nccl_ge_2_28_7);

/// When a call that is inside counts as blocked.
pub(super) struct Interruption<'a> {
    inner: &'a Inner,
    soon: Deadline,
}

impl<'a> Interruption<'a> {
    /// That of a call inside `inner`, whose gate is shut.
    pub(super) fn of(inner: &'a Inner) -> Self {
        Self { inner, soon: Deadline::after(BLOCKED) }
    }

    /// Whether there is a call that does not leave by itself, and has not for so long.
    pub(super) fn is_due(&self) -> bool {
        !self.inner.is_left() && (self.soon.expired() || self.inner.is_stuck())
    }
}

/// Wraps `ncclCommRevoke`: returns when the device has left, and NCCL is done.
///
/// The caller has condemned `inner`, and ends it on this thread; or has revoked it, and ends it on this thread later on if at all.
#[cfg(nccl_ge_2_28_7)]
pub(crate) fn revoke(inner: &Inner) -> Result<()> {
    use crate::nccl::raw::check::check;
    use crate::sys;

    spare_others(inner);
    // SAFETY: the handle is live: what ends the communicator comes after this on the same thread. Revoking sets flags that NCCL
    // reads while it waits, and is made to be called while calls are under way. It takes them back, for all of this rank that share them:
    // who ends one of those has the turn of their lock.
    let code = unsafe { sys::ncclCommRevoke(inner.handle().raw(), sys::NCCL_REVOKE_DEFAULT as std::ffi::c_int) };
    check("ncclCommRevoke", code)
}

/// NCCL frees what a rank receives by as soon as its own kernels have left, and those of the other ranks of this process write there until
/// they have. They are stopped at the same time; a rank that has none of its own waits for that, a moment.
#[cfg(nccl_ge_2_28_7)]
fn spare_others(inner: &Inner) {
    let members = inner.household.members();
    if members.len() > 1 && streams_of(inner).is_some_and(are_seen_idle) {
        let is_idle = |one: &Inner| streams_of(one).is_some_and(|streams| are_idle(&streams));
        let _ = Deadline::after(LEAVING).until(|| Ok(members.iter().all(|member| is_idle(member)).then_some(())));
    }
}

#[cfg(nccl_ge_2_28_7)]
fn streams_of(inner: &Inner) -> Option<Vec<Stream>> {
    inner.lock_within(&Deadline::after(Duration::ZERO)).map(|guard| guard.streams.all().to_vec())
}

#[cfg(nccl_ge_2_28_7)]
fn are_idle(streams: &[Stream]) -> bool {
    streams.iter().all(|stream| stream.is_drained().unwrap_or(true))
}

/// The same before any flag is raised. CUDA is asked on another thread: a call of the driver may hold it up that waits for the very kernels
/// that the flag stops, and then they are not idle.
#[cfg(nccl_ge_2_28_7)]
fn are_seen_idle(streams: Vec<Stream>) -> bool {
    if streams.iter().all(|stream| stream.in_flight().places() == 0) {
        return true;
    }
    let (answer, answered) = mpsc::channel();
    aside("gpucomm-ask", move || {
        let _ = answer.send(are_idle(&streams));
    });
    answered.recv_timeout(LEAVING).unwrap_or(false)
}

/// There is no such function before NCCL 2.28.7.
#[cfg(not(nccl_ge_2_28_7))]
pub(crate) fn revoke(_inner: &Inner) -> Result<()> {
    Ok(())
}

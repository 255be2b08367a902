//! Wakes a thread that blocks inside NCCL, and stops a communicator without freeing it:
//! `ncclCommRevoke`.
//!
//! The first operation on a communicator, or the first with a peer, exchanges addresses inside the
//! call, and blocks if the peer never comes. `ncclCommRevoke` (2.28.7) raises the flag that NCCL
//! and its kernels read while they wait, waits until the device has left, and frees nothing. So it
//! may be called while a thread is inside. Only a call that really waits may be woken: one that
//! goes on would lose what it uses. Older versions have nothing safe: the call blocks until the
//! peer comes.
//!
//! Nothing may be freed before the revoke has returned: it goes on using the communicator when the
//! threads that it woke have left.
//!
//! A call may also wait inside the driver, which the flag does not end: for example, behind a `cudaFree`
//! of another library, which waits for the whole device with the driver's lock. When the work there is
//! done, the call launches its kernel, which uses what a revoke has freed meanwhile. So no rank of a
//! process is revoked while a thread inside one of them may wait for a host function: [`waits_in_driver`]. A
//! kernel of the user's that runs for longer than [`BLOCKED`] has the same effect and is not
//! waited for: work that looks like it may wait for this very communicator, and would then wait for
//! ever.
//!
//! A revoke takes the flag back when it is done, and works once. A thread that is not waiting for a
//! peer then, but comes to that later, out of a slow call of the driver, waits for ever. So a call
//! counts as blocked after several seconds only. That holds for a clique, too: its ranks meet
//! before they connect, so a call waits for a peer only if that one was stopped in between, or in
//! the driver for kernels of this very communicator, which nothing else would stop. One case
//! remains: a call that is slower than that, and waits for a peer afterwards, never returns, and
//! its communicator is never freed.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::cuda::{Device, Event, Stream, Tracker, is_host_function_running};
use crate::deadline::Deadline;
use crate::error::Result;
use crate::lock::Mutex;
use crate::nccl::rank::helper::aside;
use crate::nccl::rank::inner::Inner;

/// How long a call takes before it counts as blocked: longer than what the driver does in a first
/// call, and less than [`GRACE`](crate::nccl::lifecycle::abort::GRACE), so that an abort is done
/// within that.
pub(crate) const BLOCKED: Duration = Duration::from_secs(5);

/// How long the driver takes to make an event if no thread has its lock, at most.
const ANSWERS: Duration = Duration::from_millis(300);

/// How long kernels take to leave after the flag was raised.
const LEAVING: Duration = Duration::from_millis(300);

/// Whether NCCL has `ncclCommRevoke`.
pub(super) const IS_POSSIBLE: bool = cfg!(nccl_ge_2_28_7);

/// Decides when a thread that is inside NCCL counts as blocked.
pub(super) struct Interruption<'a> {
    inner: &'a Inner,
    /// The visit to NCCL that was seen last, and when it counts as blocked.
    seen: Cell<(u64, Deadline)>,
}

impl<'a> Interruption<'a> {
    /// For a thread inside `inner`, whose gate is shut.
    pub(super) fn of(inner: &'a Inner) -> Self {
        Self { inner, seen: Cell::new((inner.visit(), Deadline::after(BLOCKED))) }
    }

    /// Whether a thread is inside that does not leave by itself, and has not for so long. A thread that was
    /// promised a visit for so long, and has not begun it, waits for a store that does not
    /// answer: its promise is broken.
    pub(super) fn is_due(&self) -> bool {
        let visit = self.inner.visit();
        if visit != self.seen.get().0 {
            self.seen.set((visit, Deadline::after(BLOCKED)));
        }
        let is_late = self.seen.get().1.expired();
        if visit % 2 == 1 {
            return (is_late || self.inner.is_stuck()) && !waits_in_driver(self.inner);
        }
        if is_late && !self.inner.is_left() {
            self.inner.break_promises();
        }
        false
    }
}

/// Whether a thread is inside NCCL on `inner` that may wait in the driver for a host function on the
/// device. It launches its kernel afterwards.
pub(super) fn waits_in_driver(inner: &Inner) -> bool {
    !inner.is_left() && is_host_function_running(inner.device) && is_driver_locked(inner.device)
}

/// Whether a thread of this process waits inside the driver for `device`, with the lock of the driver.
/// To make an event takes that lock. Another thread makes it, as it may wait for ever.
fn is_driver_locked(device: Device) -> bool {
    /// The devices for which a thread makes an event, and whether it has done so.
    static ASKED: Mutex<Vec<(Device, Arc<AtomicBool>)>> = Mutex::new(Vec::new());

    let answered = {
        let mut asked = ASKED.lock();
        asked.retain(|(_, answered)| !answered.load(Ordering::Acquire));
        match asked.iter().find(|(asked, _)| *asked == device) {
            Some((_, answered)) => Arc::clone(answered),
            None => {
                let answered = Arc::new(AtomicBool::new(false));
                let answer = Arc::clone(&answered);
                let asks = aside("gpucomm-ask", move || {
                    drop(Event::new(device));
                    answer.store(true, Ordering::Release);
                });
                if !asks {
                    // It is not known, and asked again in the next round.
                    return true;
                }
                asked.push((device, Arc::clone(&answered)));
                answered
            }
        }
    };
    !Deadline::after(ANSWERS).wait(|| answered.load(Ordering::Acquire))
}

/// Wraps `ncclCommRevoke`: returns when the device has left, and NCCL is done.
///
/// The caller has marked `inner` aborted or revoked. If it is freed, then later, on this thread.
#[cfg(nccl_ge_2_28_7)]
pub(crate) fn revoke(inner: &Inner) -> Result<()> {
    use crate::nccl::raw::check::check;
    use crate::sys;

    spare_others(inner);
    inner.set_revoked_in_nccl();
    // SAFETY: the handle is live: what ends the communicator comes after this on the same thread.
    // Revoking sets flags that NCCL reads while it waits, and is made to be called while calls are
    // under way. It takes them back, for all communicators of this rank that share them: the thread
    // that ends one of those has the turn of their lock.
    let code = unsafe { sys::ncclCommRevoke(inner.handle().raw(), sys::NCCL_REVOKE_DEFAULT as std::ffi::c_int) };
    check("ncclCommRevoke", code)
}

/// Waits a moment for the kernels of the other ranks of this process, if `inner` has none of its
/// own. NCCL frees the buffers by which a rank receives as soon as its own kernels have left. The
/// kernels of the other ranks, which are stopped at the same time, write there until they have
/// left.
#[cfg(nccl_ge_2_28_7)]
fn spare_others(inner: &Inner) {
    let ranks = inner.local_ranks.ranks();
    if ranks.len() > 1 && is_seen_idle(inner) {
        let is_idle = |one: &Inner| streams_of(one).is_some_and(|streams| are_idle(&streams));
        Deadline::after(LEAVING).wait(|| ranks.iter().all(|rank| is_idle(rank)));
    }
}

/// Whether the streams of `inner` are known to be idle, before any flag is raised.
#[cfg(nccl_ge_2_28_7)]
fn is_seen_idle(inner: &Inner) -> bool {
    streams_of(inner).is_some_and(are_seen_idle)
}

#[cfg(nccl_ge_2_28_7)]
fn streams_of(inner: &Inner) -> Option<Vec<Stream>> {
    inner.lock_within(&Deadline::after(Duration::ZERO)).map(|guard| guard.streams.all().to_vec())
}

#[cfg(nccl_ge_2_28_7)]
fn are_idle(streams: &[Stream]) -> bool {
    streams.iter().all(|stream| stream.is_drained().unwrap_or(true))
}

/// As [`are_idle`], before any flag is raised.
#[cfg(nccl_ge_2_28_7)]
fn are_seen_idle(streams: Vec<Stream>) -> bool {
    streams.iter().all(|stream| stream.in_flight().places() == 0) || asked_aside(move || are_idle(&streams))
}

/// Whether these uses are known to be done, before any flag is raised.
pub(super) fn are_seen_done(uses: &Arc<Tracker>) -> bool {
    let uses = Arc::clone(uses);
    asked_aside(move || uses.is_done().unwrap_or(true))
}

/// The answer of another thread, which asks CUDA: a call of the driver that waits for the very kernels
/// which the flag stops may hold it up. Then the answer is no.
fn asked_aside(is_so: impl FnOnce() -> bool + Send + 'static) -> bool {
    let (answer, answered) = mpsc::channel();
    aside("gpucomm-ask", move || {
        let _ = answer.send(is_so());
    });
    answered.recv_timeout(LEAVING).unwrap_or(false)
}

/// There is no such function before NCCL 2.28.7.
#[cfg(not(nccl_ge_2_28_7))]
pub(crate) fn revoke(_inner: &Inner) -> Result<()> {
    Ok(())
}

//! What a communicator shares with its aborters, its buffers and the watchdog.
//!
//! Every NCCL call on it is a visit through its [`Gate`], and so its end has to wait for none: aborting while another thread is inside NCCL
//! corrupts the heap. The one exception is the call that wakes a thread which blocks inside NCCL; see [`interrupt`](crate::nccl::life::interrupt).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use super::factors::Factors;
use super::family;
use super::gate::{Gate, Lock, Locked, LockedAll};
use super::graphs::Graphs;
use super::guarded::Guarded;
use super::helper::Helper;
use super::household::{Household, Households};
use super::issued::Issued;
use super::one_sided::OneSided;
use super::scratch::Scratch;
use super::standing::{Standing, State};
use super::windows::Windows;
use crate::cuda::{Device, Fate};
use crate::error::{Error, Result};
use crate::nccl::agree::checked::Checked;
use crate::nccl::agree::recent::Recent;
use crate::nccl::raw::handle::Handle;
use crate::sys;

/// The ranks of one process that belong together.
pub(crate) type Family = family::Family<Inner>;

/// The operation of a call that the watchdog ends because it stays inside NCCL: it does not know the method.
pub(crate) const STAYS_INSIDE: &str = "call";

/// Its lines are its own: every operation writes to it, and the ranks of a clique are made one after the other.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Inner {
    pub(super) gate: Gate<Guarded>,
    /// Live until the gate is shut and empty; then it belongs to whoever ends the communicator.
    handle: Handle,
    me: Weak<Self>,
    /// Unique among the communicators of this process.
    pub(crate) id: u64,
    /// The place of its lock in the order in which locks are taken: the same for those that share one.
    pub(crate) order: u64,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) device: Device,
    pub(crate) family: Option<Arc<Family>>,
    /// What its ranks compare that live in several processes, where they do.
    pub(crate) checked: OnceLock<Arc<Checked>>,
    pub(super) standing: Standing,
    /// How it has ended, for those who wait for its work.
    fate: Arc<Fate>,
    /// The last visit that was seen to take long.
    pub(super) stuck: AtomicU64,
    stopped: AtomicBool,
    pub(crate) household: Arc<Household<Self>>,
    helper: Helper,
    timeout_ms: AtomicU64,
    /// For sums that must not be sums to NCCL.
    pub(crate) factors: Factors,
    /// Set once all devices that are known were found to reduce numbers of eight bits.
    pub(crate) reduces_float8: OnceLock<()>,
    pub(crate) windows: Windows,
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) one_sided: OneSided,
    pub(crate) scratch: Scratch,
    pub(crate) graphs: Graphs,
    /// Written under the lock.
    pub(crate) recent: Recent,
    pub(crate) issued: Issued,
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    pub(crate) force_windows: bool,
    /// Reductions of the user's that could not be destroyed when they were dropped.
    dropped_ops: Mutex<Vec<sys::ncclRedOp_t>>,
}

/// What a new communicator is made of.
pub(crate) struct Parts {
    pub(crate) handle: Handle,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) device: Device,
    pub(crate) family: Option<Arc<Family>>,
    pub(crate) household: Arc<Household<Inner>>,
    pub(crate) helper: Helper,
    pub(crate) timeout: Duration,
    /// Whether windows are made whatever is known of them.
    pub(crate) force_windows: bool,
    /// The lock of those that it shares its resources with, as what is split off from it does; of who shares nothing none.
    pub(crate) lock: Option<Arc<Lock>>,
}

/// The ranks of this process, by communicator.
pub(crate) static HOUSEHOLDS: Households<Inner> = Households::new();

/// A number that no other communicator has, and no lock that is shared.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Inner {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let id = next_id();
        let order = parts.lock.as_ref().map_or(id, |lock| lock.order);
        let inner = Arc::new_cyclic(|me| Self {
            gate: Gate::new(Guarded::default(), parts.lock),
            handle: parts.handle,
            me: me.clone(),
            id,
            order,
            rank: parts.rank,
            size: parts.size,
            device: parts.device,
            family: parts.family,
            checked: OnceLock::new(),
            standing: Standing::new(),
            fate: Arc::default(),
            stuck: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            household: parts.household,
            helper: parts.helper,
            timeout_ms: AtomicU64::new(0),
            factors: Factors::default(),
            reduces_float8: OnceLock::new(),
            windows: Windows::default(),
            one_sided: OneSided::default(),
            scratch: Scratch::default(),
            graphs: Graphs::default(),
            recent: Recent::default(),
            issued: Issued::default(),
            force_windows: parts.force_windows,
            dropped_ops: Mutex::default(),
        });
        inner.set_timeout(parts.timeout);
        inner
    }

    #[inline]
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn set_timeout(&self, timeout: Duration) {
        let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        self.timeout_ms.store(ms, Ordering::Relaxed);
    }

    /// How it stands.
    pub(crate) fn state(&self) -> State {
        self.standing.state()
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.standing.is_active()
    }

    /// Why nothing more can be done with this communicator, as an error of `operation`; `None` while it is active.
    pub(crate) fn refusal(&self, operation: &'static str) -> Option<Error> {
        self.standing.refusal(operation)
    }

    /// Why it is aborted; `None` while it is not.
    pub(crate) fn cause(&self) -> Option<&Error> {
        self.standing.cause()
    }

    /// The error of `operation`, a call that was inside NCCL and did not come back in time, so that the communicator was ended.
    pub(crate) fn stayed_inside(&self, operation: &'static str) -> Option<Error> {
        let cause = self.standing.cause()?;
        matches!(cause, Error::Timeout { operation: STAYS_INSIDE, .. }).then(|| cause.met_by(operation))
    }

    /// Has the communicator be aborted, once: true for the one caller who must then end it. Nobody enters NCCL any more.
    pub(crate) fn condemn(&self, cause: Error) -> bool {
        let first = self.standing.condemn(cause);
        if first {
            self.gate.shut();
            self.standing.cause().into_iter().for_each(|cause| self.fate.fail(cause.later("wait")));
        }
        first
    }

    /// Has the communicator be revoked, once: true for the one caller who must then stop it. Nobody enters NCCL any more, but who makes
    /// others of it.
    pub(crate) fn revoke(&self, cause: Error) -> bool {
        let first = self.standing.revoke(cause);
        if first {
            self.gate.shut();
            self.standing.cause().into_iter().for_each(|cause| self.fate.fail(cause.later("wait")));
        }
        first
    }

    /// Whether it was revoked, and nobody has ended it since.
    pub(crate) fn is_revoked(&self) -> bool {
        self.standing.is_revoked()
    }

    /// Whether it was revoked before it ended.
    pub(crate) fn was_revoked(&self) -> bool {
        self.standing.was_revoked()
    }

    /// Why it is about to end, or has, as an error of `operation`; `None` while it is active or suspended, or was revoked.
    pub(crate) fn unfit(&self, operation: &'static str) -> Option<Error> {
        (!matches!(self.state(), State::Active | State::Revoked | State::Suspended)).then(|| self.dead(operation))
    }

    /// Has the communicator be closed, once: true for the one caller who must then end it. Nobody enters NCCL any
    /// more. All its work is done, and was asked for errors since.
    pub(crate) fn retire(&self) -> bool {
        let first = self.standing.retire();
        if first {
            self.gate.shut();
            self.fate.close();
        }
        first
    }

    /// How it has ended, for those who wait for its work.
    #[inline]
    pub(crate) fn fate(&self) -> &Arc<Fate> {
        &self.fate
    }

    /// This rank, for who may outlive it.
    pub(crate) fn me(&self) -> &Weak<Self> {
        &self.me
    }

    /// The lock, whatever the state, unless another thread has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Locked<'_, Guarded>> {
        self.gate.try_lock()
    }

    /// The lock that it has in common with those that it shares its resources with.
    #[inline]
    pub(crate) fn shared_lock(&self) -> Option<&Arc<Lock>> {
        self.gate.shared()
    }

    /// Adds it to `all`, if one of them has its lock.
    #[inline]
    pub(crate) fn join<'a>(&'a self, all: &mut LockedAll<'a, Guarded>) -> bool {
        all.join(&self.gate)
    }

    /// The handle: for visitors, and for who has condemned or retired the communicator; nobody else uses it once [`Inner::is_left`].
    #[inline]
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// The thread that ends this communicator.
    pub(crate) fn helper(&self) -> &Helper {
        &self.helper
    }

    /// It was revoked, and so has left the device; NCCL lets go of it some time later.
    pub(crate) fn set_stopped(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Whether it writes nowhere any more, though NCCL may not have let go of it.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// NCCL has let go of this rank.
    pub(crate) fn set_ended(&self) {
        if self.standing.end() {
            self.trace_end();
            self.household.leave(self);
        }
    }

    /// Whether NCCL has let go of this rank.
    pub(crate) fn has_ended(&self) -> bool {
        self.state().is_ended()
    }

    /// Whether it was closed, and NCCL keeps it until those have ended that share its resources.
    pub(crate) fn rests(&self) -> bool {
        self.state() == State::Closing && self.household.sharers().is_some_and(|sharers| sharers.rests(self))
    }

    /// Whether NCCL has let go of all ranks of this process: nothing of it uses memory any more, and its windows are gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.household.is_empty()
    }

    /// Reductions that are still to be destroyed.
    pub(crate) fn dropped_ops(&self) -> MutexGuard<'_, Vec<sys::ncclRedOp_t>> {
        self.dropped_ops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why nothing more can be done with this communicator, which is active no more.
    #[cold]
    pub(crate) fn dead(&self, operation: &'static str) -> Error {
        self.refusal(operation).unwrap_or(Error::Aborted { operation, reason: "unknown".into() })
    }

    /// Checks a rank that a user named.
    #[inline]
    pub(crate) fn check_rank(&self, operation: &'static str, what: &'static str, rank: usize) -> Result<()> {
        if rank < self.size {
            return Ok(());
        }
        Err(Error::argument(operation, what, format!("a rank below {}", self.size), rank))
    }
}

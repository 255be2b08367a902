//! One rank of a communicator, as its handles, aborters, buffers and the watchdog share it.
//!
//! Every NCCL call on the rank is a visit through its [`Gate`]. The end of the rank waits until no
//! visit is under way: NCCL corrupts the heap if a communicator is aborted while another thread is
//! inside. One call is made beside a visit, to wake a thread that blocks inside NCCL: see
//! [`interrupt`](crate::nccl::lifecycle::interrupt).

use std::borrow::Borrow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::factors::Factors;
use super::gate::{Gate, Lock, Locked, LockedAll};
use super::graphs::Graphs;
use super::guarded::Guarded;
use super::helper::Helper;
use super::issued::Issued;
use super::one_sided::OneSided;
use super::scratch::Scratch;
use super::state::StateMachine;
use super::windows::Windows;
use crate::cuda::{Device, Fate};
use crate::deadline::kept;
use crate::error::{Error, Result};
use crate::lock::{Mutex, MutexGuard};
use crate::name::Name;
use crate::nccl::local_ranks::tree;
use crate::nccl::rank::recent::Recent;
use crate::nccl::raw::handle::Handle;
use crate::nccl::validate::validation::Validation;
use crate::sys;

/// The ranks of one communicator that live in this process.
pub(crate) type LocalRanks = tree::LocalRanks<Inner>;

/// All ranks of this process, by communicator.
pub(crate) static LOCAL_RANKS: tree::Roots<Inner> = tree::Roots::new();

/// One rank of a communicator. It has cache lines of its own: every operation writes to it, and the
/// ranks of a clique are allocated one after the other.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Inner {
    pub(super) gate: Gate<Guarded>,
    /// Live until the gate is shut and empty. From then on it belongs to the thread that ends the
    /// rank.
    handle: Handle,
    me: Weak<Self>,
    /// Unique among the communicators of this process.
    pub(crate) id: u64,
    /// The place of its lock in the order in which locks are taken. Ranks that share a lock have
    /// the same.
    pub(crate) order: u64,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) device: Device,
    /// What this process calls the communicator.
    pub(crate) name: Name,
    /// How it compares with its other ranks.
    pub(crate) validation: Validation,
    pub(super) state: StateMachine,
    /// How it has ended, for threads that wait for its work.
    pub(super) fate: Arc<Fate>,
    /// The last visit that was seen to take long.
    pub(super) stuck: AtomicU64,
    pub(super) stopped: AtomicBool,
    /// Whether `ncclCommRevoke` was called.
    pub(super) revoked_in_nccl: AtomicBool,
    /// The ranks of the same communicator in this process.
    pub(crate) local_ranks: Arc<LocalRanks>,
    helper: Helper,
    timeout_ms: AtomicU64,
    /// How long its end may take at most, where somebody has waited for that already.
    end_ms: AtomicU64,
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

/// What a new rank is made of.
pub(crate) struct Parts {
    pub(crate) handle: Handle,
    pub(crate) name: Name,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) device: Device,
    pub(crate) local_ranks: Arc<LocalRanks>,
    pub(crate) helper: Helper,
    pub(crate) timeout: Duration,
    /// Whether windows are made whatever is known of them.
    pub(crate) force_windows: bool,
    /// The lock that it shares with its parts, if these share its resources.
    pub(crate) lock: Option<Arc<Lock>>,
}

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
            name: parts.name,
            validation: Validation::new(parts.local_ranks.in_process().cloned()),
            state: StateMachine::new(),
            fate: Arc::default(),
            stuck: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            revoked_in_nccl: AtomicBool::new(false),
            local_ranks: parts.local_ranks,
            helper: parts.helper,
            timeout_ms: AtomicU64::new(0),
            end_ms: AtomicU64::new(u64::MAX),
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
        self.timeout_ms.store(kept(timeout), Ordering::Relaxed);
    }

    /// How long whoever drops the rank waits for its end at most.
    pub(crate) fn time_to_end(&self) -> Duration {
        self.timeout().min(Duration::from_millis(self.end_ms.load(Ordering::Relaxed)))
    }

    /// Whoever drops the rank waits no longer for its end.
    pub(crate) fn limit_end(&self, time: Duration) {
        self.end_ms.fetch_min(kept(time), Ordering::Relaxed);
    }

    /// How it has ended, for threads that wait for its work.
    #[inline]
    pub(crate) fn fate(&self) -> &Arc<Fate> {
        &self.fate
    }

    /// A reference to this rank that does not keep it alive.
    pub(crate) fn me(&self) -> &Weak<Self> {
        &self.me
    }

    /// Takes the lock, whatever the state. `None` while another thread has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Locked<'_, Guarded>> {
        self.gate.try_lock()
    }

    /// The lock that it shares with the communicators that share its resources.
    #[inline]
    pub(crate) fn shared_lock(&self) -> Option<&Arc<Lock>> {
        self.gate.shared()
    }

    /// Whether it shares its resources with its parts.
    #[inline]
    pub(crate) fn shares_resources(&self) -> bool {
        self.shared_lock().is_some()
    }

    /// Adds it to `all`, if one of them has its lock.
    #[inline]
    pub(crate) fn join<'a>(&'a self, all: &mut LockedAll<'a, Guarded>) -> bool {
        all.join(&self.gate)
    }

    /// The handle, for threads that are inside, and for the thread that ends the rank. No other
    /// thread uses it once [`Inner::is_left`].
    #[inline]
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// The thread that ends the rank.
    pub(crate) fn helper(&self) -> &Helper {
        &self.helper
    }

    /// Reductions that are still to be destroyed.
    pub(crate) fn dropped_ops(&self) -> MutexGuard<'_, Vec<sys::ncclRedOp_t>> {
        self.dropped_ops.lock()
    }

    /// Returns an error if there is no such rank, which a user named as `what`.
    #[inline]
    pub(crate) fn check_rank(&self, operation: &'static str, what: &'static str, rank: usize) -> Result<()> {
        if rank < self.size {
            return Ok(());
        }
        Err(Error::argument(operation, what, format!("a rank below {}", self.size), rank))
    }
}

/// Other ranks of this process.
impl Inner {
    /// All ranks of its clique; itself alone if it is in no clique.
    pub(crate) fn clique_ranks(&self) -> Vec<Arc<Self>> {
        match self.validation.in_process() {
            Some(_) => self.local_ranks.ranks(),
            None => self.me().upgrade().into_iter().collect(),
        }
    }

    /// All ranks of the cliques of `members`.
    pub(crate) fn cliques_of(members: &[impl Borrow<Self>]) -> Vec<Arc<Self>> {
        members.iter().flat_map(|inner| inner.borrow().clique_ranks()).collect()
    }

    /// The other communicators of this rank that share resources with it and are active.
    pub(crate) fn sharers(&self) -> Vec<Arc<Self>> {
        if !self.shares_resources() {
            return Vec::new();
        }
        let mut all = self.local_ranks.sharing_ranks();
        all.retain(|other| other.order == self.order && other.id != self.id && other.is_active());
        all
    }
}

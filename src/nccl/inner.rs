//! What a communicator shares with its aborters, its buffers and the watchdog.
//!
//! One lock guards the C handle. Every NCCL call on the communicator is made under it, and so is its end: aborting while
//! another thread is inside NCCL corrupts the heap. The one exception is the call that wakes a thread which blocks inside
//! NCCL, waiting for a peer; see [`interrupt`](super::interrupt).

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError, Weak};
use std::time::Duration;

use super::config::Config;
use super::health::Readers;
use super::ledger::Ledger;
use super::ones::Ones;
use super::streams::Streams;
use super::works::Works;
use crate::cuda::{Device, Fate, Work, Worker};
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};
use crate::sys;

/// The C handle. NCCL's communicators belong to no thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) sys::ncclComm_t);

impl Handle {
    pub(crate) fn raw(self) -> sys::ncclComm_t {
        self.0
    }
}

// SAFETY: a communicator may be used from any thread, one at a time; the lock in `Inner` sees to that.
unsafe impl Send for Handle {}

/// The ranks of one process that belong together.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) ledger: Ledger,
    pub(crate) members: OnceLock<Vec<Weak<Inner>>>,
}

/// What the lock guards.
#[derive(Debug)]
pub(crate) struct Guarded {
    /// `None` once the communicator was destroyed, aborted, or given up.
    pub(crate) handle: Option<Handle>,
    pub(crate) streams: Streams,
    pub(crate) works: Works,
}

const ACTIVE: u8 = 0;
const CLOSING: u8 = 1;
const DEAD: u8 = 2;

/// Its lines are its own: every operation writes to it, and the ranks of a clique are made one after the other.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Inner {
    me: Weak<Self>,
    /// Unique among the communicators of this process.
    pub(crate) id: u64,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) device: Device,
    pub(crate) family: Option<Arc<Family>>,
    guarded: Mutex<Guarded>,
    state: AtomicU8,
    /// Why the communicator is dead; set before `state` says so.
    cause: OnceLock<Error>,
    /// How it has ended, for those who wait for its work.
    fate: Arc<Fate>,
    /// The handle again, for asking without the lock, and for waking a thread that holds the lock inside NCCL; null once the handle was taken.
    raw: AtomicPtr<sys::ncclComm>,
    pub(crate) readers: Readers,
    /// Whether `ncclCommDestroy` or `ncclCommAbort` has returned: its windows are gone, and their memory may go.
    ended: AtomicBool,
    /// Odd while a thread is inside an NCCL call on this communicator; the watchdog looks whether it moves.
    pub(crate) entered: AtomicU64,
    timeout_ms: AtomicU64,
    /// For sums that must not be sums to NCCL.
    pub(crate) ones: Ones,
    /// NCCL keeps pointers into it.
    _config: Config,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Inner {
    pub(crate) fn new(
        handle: Handle,
        rank: usize,
        size: usize,
        device: Device,
        family: Option<Arc<Family>>,
        timeout: Duration,
        config: Config,
    ) -> Arc<Self> {
        let inner = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            rank,
            size,
            device,
            family,
            guarded: Mutex::new(Guarded { handle: Some(handle), streams: Streams::default(), works: Works::default() }),
            state: AtomicU8::new(ACTIVE),
            cause: OnceLock::new(),
            fate: Arc::default(),
            raw: AtomicPtr::new(handle.0),
            readers: Readers::default(),
            ended: AtomicBool::new(false),
            entered: AtomicU64::new(0),
            timeout_ms: AtomicU64::new(0),
            ones: Ones::default(),
            _config: config,
        });
        inner.set_timeout(timeout);
        inner
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn set_timeout(&self, timeout: Duration) {
        let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        self.timeout_ms.store(ms, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        // In one order with the count of readers; an ordinary load where it matters.
        self.state.load(Ordering::SeqCst) == ACTIVE
    }

    /// Why nothing more can be done with this communicator, as an error of `operation`; `None` while it is active.
    pub(crate) fn refusal(&self, operation: &'static str) -> Option<Error> {
        match self.state.load(Ordering::Acquire) {
            ACTIVE => None,
            DEAD => Some(match self.cause.get() {
                Some(cause) => after(operation, self.rank, cause),
                None => Error::Aborted { operation, reason: "unknown".into() },
            }),
            _ => Some(Error::Aborted { operation, reason: "it was closed".into() }),
        }
    }

    /// Marks the communicator dead, once: true for the one caller who must then end it.
    pub(crate) fn condemn(&self, cause: Error) -> bool {
        // The first cause stays. Only who moves the state away from ACTIVE may end the communicator.
        let _ = self.cause.set(cause);
        let first = self.state.compare_exchange(ACTIVE, DEAD, Ordering::SeqCst, Ordering::Acquire).is_ok();
        if first && let Some(error) = self.refusal("wait") {
            self.fate.fail(error);
        }
        first
    }

    /// Marks the communicator as being closed, once: true for the one caller who must then end it. All its work is done,
    /// and was asked for errors since.
    pub(crate) fn retire(&self) -> bool {
        let first = self.state.compare_exchange(ACTIVE, CLOSING, Ordering::SeqCst, Ordering::Acquire).is_ok();
        if first {
            self.fate.close();
        }
        first
    }

    /// Whether the communicator is being closed, or was.
    pub(crate) fn is_closing(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSING
    }

    /// How it has ended, for those who wait for its work.
    pub(crate) fn fate(&self) -> &Arc<Fate> {
        &self.fate
    }

    /// A work of this communicator, whose operations come after number `base`.
    pub(crate) fn new_work(&self, base: u64) -> Work {
        let me: Weak<dyn Worker> = self.me.clone();
        Work::new(me, Arc::clone(&self.fate), base)
    }

    /// The lock, whatever the state: for those who end the communicator. A panic of another thread under the lock leaves
    /// nothing half done, so poison is ignored.
    pub(crate) fn lock_within(&self, deadline: &Deadline) -> Option<MutexGuard<'_, Guarded>> {
        let mut round = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            if deadline.expired() {
                return None;
            }
            backoff(round);
            round += 1;
        }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Guarded>> {
        match self.guarded.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The handle without the lock. Live for who has condemned the communicator, until it takes the handle; and for
    /// readers.
    pub(crate) fn raw(&self) -> Option<Handle> {
        let raw = self.raw.load(Ordering::Acquire);
        (!raw.is_null()).then_some(Handle(raw))
    }

    /// The handle was taken, after the state was changed: nobody may wake threads by it any more, and nobody reads it when
    /// this returns.
    pub(crate) fn forget_raw(&self) {
        self.raw.store(ptr::null_mut(), Ordering::Release);
        self.readers.leave();
    }

    /// NCCL has let go of the communicator.
    pub(crate) fn set_ended(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Whether NCCL has let go of the communicator.
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The lock and the live handle, for one operation.
    #[inline]
    pub(crate) fn enter(&self, operation: &'static str) -> Result<(MutexGuard<'_, Guarded>, sys::ncclComm_t)> {
        let guard = match self.try_lock() {
            Some(guard) => guard,
            None => self.wait_for_lock(operation)?,
        };
        if !self.is_active() {
            return Err(self.refusal(operation).unwrap_or(Error::Aborted { operation, reason: "unknown".into() }));
        }
        match guard.handle {
            Some(Handle(handle)) => Ok((guard, handle)),
            None => Err(Error::Aborted { operation, reason: "it was closed".into() }),
        }
    }

    #[cold]
    fn wait_for_lock(&self, operation: &'static str) -> Result<MutexGuard<'_, Guarded>> {
        let deadline = Deadline::after(self.timeout());
        let mut round = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return Ok(guard);
            }
            if let Some(error) = self.refusal(operation) {
                return Err(error);
            }
            if deadline.expired() {
                return Err(deadline.error(operation, "another thread is inside a call on this communicator"));
            }
            backoff(round);
            round += 1;
        }
    }

    /// Runs `call`, which enters NCCL, so that the watchdog sees how long it takes. The caller holds the lock.
    #[inline]
    pub(crate) fn inside<R>(&self, call: impl FnOnce() -> R) -> R {
        self.begin_visit();
        let result = call();
        self.end_visit();
        result
    }

    /// Before a call that enters NCCL. The caller holds the lock.
    #[inline]
    pub(crate) fn begin_visit(&self) {
        self.entered.store(self.entered.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// After it.
    #[inline]
    pub(crate) fn end_visit(&self) {
        self.entered.store(self.entered.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// All ranks of this process that belong together: this one alone, where there are no others.
    pub(crate) fn relatives(&self) -> Vec<Arc<Self>> {
        match self.family.as_ref().and_then(|family| family.members.get()) {
            Some(members) => members.iter().filter_map(Weak::upgrade).collect(),
            None => self.me.upgrade().into_iter().collect(),
        }
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

/// The error that a later `operation` gets, after `cause` has ended the communicator.
fn after(operation: &'static str, rank: usize, cause: &Error) -> Error {
    match cause {
        Error::Aborted { reason, .. } => Error::Aborted { operation, reason: reason.clone() },
        Error::Disagreement { rank: other, peer, expected, got, .. } if *other == rank => {
            Error::Disagreement { operation, rank: *other, peer: *peer, expected: expected.clone(), got: got.clone() }
        }
        Error::Disagreement { rank: other, expected, got, .. } => Error::Disagreement {
            // Seen from a rank that was right: it is the other one that differs.
            operation,
            rank,
            peer: *other,
            expected: expected.clone(),
            got: got.clone(),
        },
        Error::Timeout { timeout, detail, .. } => {
            Error::Timeout { operation, timeout: *timeout, detail: detail.clone() }
        }
        other => Error::Aborted { operation, reason: other.to_string() },
    }
}

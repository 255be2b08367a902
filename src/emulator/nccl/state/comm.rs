//! A communicator: one rank's view of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::inside::Visits;
use super::redop::Redops;
use super::registry;
use super::space::Space;
use super::waits::Waits;
use crate::emulator::meet::control::{Life, Segment};
use crate::emulator::meet::futex::SLICE;
use crate::emulator::nccl::basics::config::Config;
use crate::emulator::nccl::basics::error::{Failure, Outcome, remember};
use crate::emulator::nccl::calls::connect::Connected;
use crate::emulator::nccl::calls::window::{self, Window};
use crate::sys::ncclResult_t;

/// The flag that stops everything a communicator does. A child made with `splitShare` has its parent's.
#[derive(Debug, Default)]
pub(crate) struct AbortFlag {
    set: AtomicBool,
    comms: Mutex<Vec<Weak<Comm>>>,
    /// Flags of children that are being made: nobody else knows them yet.
    making: Mutex<Vec<Arc<AbortFlag>>>,
}

impl AbortFlag {
    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Sets the flag, and wakes every wait of this process that it ends.
    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::SeqCst);
        for comm in lock(&self.comms).iter().filter_map(Weak::upgrade) {
            if let Some(segment) = comm.segment.get() {
                let head = segment.head();
                head.arrival.nudge();
                head.host.nudge();
                head.connect.nudge();
                head.news.ring();
                segment.rank(comm.rank).bell.ring();
            }
            comm.progress.nudge();
        }
        for child in std::mem::take(&mut *lock(&self.making)) {
            child.set();
        }
    }

    /// Sets `child` as well, if this flag is set while `work` runs.
    pub(crate) fn with_child<R>(&self, child: &Arc<Self>, work: impl FnOnce() -> R) -> R {
        lock(&self.making).push(child.clone());
        if self.is_set() {
            child.set();
        }
        let result = work();
        lock(&self.making).retain(|other| !Arc::ptr_eq(other, child));
        result
    }
}

/// How far a communicator's batches have come. They run in the order in which they were launched, on whatever streams.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    done: AtomicU64,
    running: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Progress {
    /// Waits until `count` batches are done, or `stop` says to stop. Whether they are.
    pub(crate) fn wait(&self, count: u64, mut stop: impl FnMut() -> bool) -> bool {
        if self.done.load(Ordering::Acquire) >= count {
            return true;
        }
        let mut guard = lock(&self.lock);
        while self.done.load(Ordering::Acquire) < count {
            if stop() {
                return false;
            }
            guard = self.changed.wait_timeout(guard, SLICE).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// A batch touches memory, or may.
    pub(crate) fn begin(&self) {
        self.running.store(true, Ordering::SeqCst);
    }

    /// Whether a batch does.
    pub(crate) fn running(&self) -> bool {
        self.running.load(Ordering::SeqCst)
    }

    /// The batch that has begun no longer does.
    pub(crate) fn end(&self) {
        self.running.store(false, Ordering::SeqCst);
    }

    /// One more batch is done, or will never run.
    pub(crate) fn finish(&self) {
        let _guard = lock(&self.lock);
        self.done.fetch_add(1, Ordering::Release);
        self.changed.notify_all();
    }

    fn nudge(&self) {
        let _guard = lock(&self.lock);
        self.changed.notify_all();
    }
}

/// What has been launched. Its lock is held while a batch is enqueued, so streams see batches in one order.
#[derive(Debug, Default)]
pub(crate) struct Issued {
    pub(crate) batches: u64,
    pub(crate) operations: u64,
    /// Host calls: split, window registration.
    pub(crate) hosted: u64,
    pub(crate) windows: u64,
}

const FINALIZED: u32 = 1;
const REVOKED: u32 = 2;

/// One rank of a communicator.
#[derive(Debug)]
pub(crate) struct Comm {
    pub(crate) handle: usize,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) device: i32,
    pub(crate) config: Config,
    pub(crate) abort: Arc<AbortFlag>,
    pub(crate) segment: OnceLock<Arc<Segment>>,
    pub(crate) issued: Mutex<Issued>,
    pub(crate) connected: Mutex<Connected>,
    pub(crate) progress: Progress,
    pub(crate) redops: Mutex<Redops>,
    pub(crate) windows: Mutex<HashMap<usize, Window>>,
    /// Where they lie.
    pub(crate) space: Mutex<Space>,
    pub(crate) visits: Visits,
    pub(crate) waits: Waits,
    /// All ranks have met.
    started: AtomicBool,
    /// 0, [`FINALIZED`] or [`REVOKED`].
    closed: AtomicU32,
    state: AtomicU32,
    text: Mutex<Option<String>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Comm {
    /// A rank that has met nobody yet; its state is "in progress".
    pub(crate) fn new(rank: usize, size: usize, device: i32, config: Config, abort: Arc<AbortFlag>) -> Arc<Self> {
        let comm = Arc::new(Self {
            handle: registry::fresh(),
            rank,
            size,
            device,
            config,
            abort,
            segment: OnceLock::new(),
            issued: Mutex::default(),
            connected: Mutex::default(),
            progress: Progress::default(),
            redops: Mutex::default(),
            windows: Mutex::default(),
            space: Mutex::default(),
            visits: Visits::default(),
            waits: Waits::default(),
            started: AtomicBool::new(false),
            closed: AtomicU32::new(0),
            state: AtomicU32::new(ncclResult_t::ncclInProgress.0),
            text: Mutex::new(None),
        });
        let mut comms = lock(&comm.abort.comms);
        comms.retain(|comm| comm.strong_count() > 0);
        comms.push(Arc::downgrade(&comm));
        drop(comms);
        comm
    }

    /// What `ncclCommGetAsyncError` says.
    pub(crate) fn state(&self) -> ncclResult_t {
        ncclResult_t(self.state.load(Ordering::Acquire))
    }

    /// The text of this communicator's first failure.
    pub(crate) fn text(&self) -> Option<String> {
        lock(&self.text).clone()
    }

    /// Marks the communicator as busy with what was just started.
    pub(crate) fn begin(&self) {
        let success = ncclResult_t::ncclSuccess.0;
        let _ =
            self.state.compare_exchange(success, ncclResult_t::ncclInProgress.0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// What was started has come to its end.
    pub(crate) fn settle(&self, outcome: &Outcome) {
        match outcome {
            Ok(()) => {
                let busy = ncclResult_t::ncclInProgress.0;
                let ready = ncclResult_t::ncclSuccess.0;
                let _ = self.state.compare_exchange(busy, ready, Ordering::AcqRel, Ordering::Relaxed);
            }
            Err(failure) => self.fail(failure),
        }
    }

    /// The start of this communicator will never run, if it has not.
    pub(crate) fn give_up(&self, failure: &Failure) {
        if self.segment.get().is_none() {
            self.fail(failure);
        }
    }

    /// Sets the asynchronous error; the first one stays.
    pub(crate) fn fail(&self, failure: &Failure) {
        let mut text = lock(&self.text);
        if text.is_none() {
            remember(&failure.text);
            *text = Some(failure.text.clone());
            self.state.store(failure.code.0, Ordering::Release);
        }
    }

    /// Whether work of this communicator has lost its meaning: aborted, or failed.
    pub(crate) fn stopped(&self) -> bool {
        self.abort.is_set() || !matches!(self.state(), ncclResult_t::ncclSuccess | ncclResult_t::ncclInProgress)
    }

    /// Whether a call may use the communicator now. NCCL itself looks only whether it was revoked, is busy or has failed.
    pub(crate) fn ensure_usable(&self) -> Outcome {
        // In this order: a revoke, which may come at any time, closes first.
        let aborted = self.abort.is_set();
        let closed = self.closed.load(Ordering::Acquire);
        if closed == REVOKED {
            return Err(Failure::usage(format!("rank {}: the communicator was revoked", self.rank)));
        }
        let unusable = if !self.started.load(Ordering::Acquire) && self.config.blocking {
            "its start has failed, and it can only be aborted"
        } else if aborted {
            "a communicator that shares its resources was aborted, and its operations end without a result"
        } else if closed == FINALIZED {
            "it was finalized"
        } else {
            return self.ensure_settled();
        };
        Err(Failure::usage(format!("rank {}: the communicator is used though {unusable}", self.rank)).reported())
    }

    /// Whether the last call on the communicator has ended, and well. An abort of others does not matter.
    pub(crate) fn ensure_settled(&self) -> Outcome {
        match self.state() {
            ncclResult_t::ncclSuccess => Ok(()),
            ncclResult_t::ncclInProgress => Err(Failure::argument(format!(
                "rank {}: the communicator is still busy with its last call (ncclInProgress)",
                self.rank
            ))),
            code => Err(Failure::new(
                code,
                format!("rank {}: the communicator has failed: {}", self.rank, self.text().unwrap_or_default()),
            )),
        }
    }

    /// The segment, which every communicator has that was ever ready.
    pub(crate) fn segment(&self) -> Outcome<&Arc<Segment>> {
        self.segment.get().ok_or_else(|| Failure::internal("the communicator has met no other rank yet"))
    }

    /// The ranks have met.
    pub(crate) fn start(&self) {
        self.started.store(true, Ordering::Release);
    }

    /// Whether they have.
    pub(crate) fn has_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Refuses a second finalize; a revoke is one, too.
    pub(crate) fn begin_finalize(&self) -> Outcome {
        self.close(FINALIZED)
    }

    fn close(&self, how: u32) -> Outcome {
        let closed = self.closed.compare_exchange(0, how, Ordering::AcqRel, Ordering::Acquire);
        closed.map(drop).map_err(|done| {
            let done = if done == REVOKED { "revoked" } else { "finalized" };
            Failure::argument(format!("rank {}: the communicator was {done} already", self.rank))
        })
    }

    /// Marks the communicator as revoked. Whatever had failed before, NCCL forgets it then.
    pub(crate) fn begin_revoke(&self) -> Outcome {
        self.close(REVOKED)
    }

    /// The end of a revoke: the communicator is well again, as far as anybody asks.
    pub(crate) fn end_revoke(&self) {
        let mut text = lock(&self.text);
        *text = None;
        self.state.store(ncclResult_t::ncclSuccess.0, Ordering::Release);
    }

    /// Waits until everything that was launched is done.
    pub(crate) fn drain(&self) -> Outcome {
        let batches = lock(&self.issued).batches;
        // Operations of a failed communicator may never end; only an abort, which takes them away, ends this wait early.
        if !self.progress.wait(batches, || self.abort.is_set()) {
            return Ok(());
        }
        match self.state() {
            ncclResult_t::ncclSuccess | ncclResult_t::ncclInProgress => Ok(()),
            code => Err(Failure::new(code, self.text().unwrap_or_default())),
        }
    }

    /// Tells the others that this rank will do nothing more, unless a fault has made it dead.
    pub(crate) fn part(&self, life: Life) {
        window::leave_behind(self);
        if let Some(segment) = self.segment.get() {
            let rank = segment.rank(self.rank);
            if rank.life() == Life::Joined {
                rank.set_life(life);
            }
        }
    }
}

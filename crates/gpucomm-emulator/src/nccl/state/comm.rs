//! A communicator, as one rank has it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::lock::Mutex;
use crate::meet::meeting::Past;
use crate::meet::register;
use crate::meet::segment::{Life, Segment};
use crate::meet::watch::Waits;
use crate::nccl::basics::config::Config;
use crate::nccl::basics::error::{Failure, Outcome, remember};
use crate::nccl::state::proxies::Place;
use crate::nccl::state::redop::Redops;
use crate::nccl::state::registrations::{GraphCache, Registrations};
use crate::nccl::state::resources::{Resources, Sleeper};
use crate::nccl::state::shared;
use crate::nccl::state::shared::{Links, NEIGHBOURS, Neighbour, Shared, Signals};
use crate::nccl::state::windows::Windows;
use crate::nccl::state::wishes::Wishes;
use crate::report;
use crate::sys::ncclResult_t;

/// Handles are multiples of this, as pointers would be.
const STEP: usize = 256;
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// A number that no handle had before.
pub(super) fn fresh_handle() -> usize {
    NEXT.fetch_add(1, Ordering::Relaxed) * STEP
}

/// Whether some handle had this number.
pub(super) fn handle_was_given(number: usize) -> bool {
    number.is_multiple_of(STEP) && number / STEP < NEXT.load(Ordering::Relaxed) && number != 0
}

/// What has been launched.
#[derive(Debug, Default)]
pub(crate) struct Issued {
    pub(crate) operations: u64,
    /// Host calls: split, window registration.
    pub(crate) hosted: u64,
    /// The meetings that they were.
    pub(crate) met: Past,
    pub(crate) windows: u64,
    /// Splits and grows.
    pub(crate) children: u64,
    /// Whether what was split off or shrunk from it last shares its resources.
    pub(crate) shares: bool,
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
    pub(crate) segment: OnceLock<Arc<Segment>>,
    pub(crate) issued: Mutex<Issued>,
    pub(crate) connected: Arc<Mutex<Links>>,
    pub(crate) redops: Redops,
    pub(crate) windows: Windows,
    pub(crate) signals: Signals,
    pub(crate) registrations: Registrations,
    pub(crate) graph_cache: GraphCache,
    pub(crate) resources: Resources,
    pub(crate) waits: Waits,
    pub(crate) wishes: Wishes,
    /// It was told that ranks use it and others in different orders.
    pub(crate) told_order: AtomicBool,
    /// It has failed, but only because a call was refused.
    refused: AtomicBool,
    /// All ranks have met; how it is connected since.
    started: OnceLock<Option<Arc<Place>>>,
    /// 0, [`FINALIZED`] or [`REVOKED`].
    closed: AtomicU32,
    state: AtomicU32,
    text: Mutex<Option<String>>,
}

impl Sleeper for Comm {
    fn wake(&self) {
        if let Some(segment) = self.segment.get() {
            let head = segment.head();
            let common = segment.common();
            common.arrival.nudge();
            common.connect.nudge();
            head.news.ring();
            segment.rank(self.rank).bell.ring();
        }
        self.resources.progress.nudge();
    }
}

impl Comm {
    /// A rank that has met nobody yet; its state is "in progress".
    pub(crate) fn new(rank: usize, size: usize, device: i32, config: Config, resources: Resources) -> Arc<Self> {
        let comm = Arc::new(Self {
            handle: fresh_handle(),
            rank,
            size,
            device,
            config,
            segment: OnceLock::new(),
            issued: Mutex::default(),
            connected: Arc::default(),
            redops: Redops::default(),
            windows: Windows::default(),
            signals: Signals::default(),
            registrations: Registrations::default(),
            graph_cache: GraphCache::default(),
            resources,
            waits: Waits::default(),
            wishes: Wishes::default(),
            told_order: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            started: OnceLock::new(),
            closed: AtomicU32::new(0),
            state: AtomicU32::new(ncclResult_t::ncclInProgress.0),
            text: Mutex::new(None),
        });
        let sleeper: Weak<Self> = Arc::downgrade(&comm);
        comm.resources.abort.watch(sleeper);
        comm
    }

    /// What `ncclCommGetAsyncError` says.
    pub(crate) fn state(&self) -> ncclResult_t {
        ncclResult_t(self.state.load(Ordering::Acquire))
    }

    /// The text of this communicator's first failure.
    pub(crate) fn text(&self) -> Option<String> {
        self.text.lock().clone()
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
        let mut text = self.text.lock();
        if text.is_none() {
            remember(&failure.text);
            *text = Some(failure.text.clone());
            self.state.store(failure.code.0, Ordering::Release);
        }
    }

    /// A call was refused, or the group that it was part of. Of a non-blocking communicator that is its asynchronous error; what was enqueued
    /// before goes on.
    pub(crate) fn refuse(&self, failure: &Failure) {
        if !self.config.blocking && self.state() == ncclResult_t::ncclSuccess {
            self.refused.store(true, Ordering::Release);
            self.fail(failure);
        }
    }

    /// How often everything that this communicator does was stopped by a revoke. What began in an earlier epoch never goes on.
    pub(crate) fn epoch(&self) -> u32 {
        self.resources.abort.epoch()
    }

    /// Whether what began in `epoch` is stopped: by an abort, or by a revoke since.
    pub(crate) fn is_stopped(&self, epoch: u32) -> bool {
        self.resources.abort.is_set() || self.epoch() != epoch
    }

    /// Whether work of this communicator has lost its meaning: aborted, or failed.
    pub(crate) fn stopped(&self) -> bool {
        let well = || matches!(self.state(), ncclResult_t::ncclSuccess | ncclResult_t::ncclInProgress);
        self.resources.abort.is_set() || !well() && !self.refused.load(Ordering::Acquire)
    }

    /// Whether a call may use the communicator now: the epoch in which it begins. NCCL itself looks only whether it was revoked, is
    /// busy or has failed.
    pub(crate) fn ensure_usable(&self) -> Outcome<u32> {
        // In this order: what is revoked from now on belongs to this epoch, and is stopped.
        let epoch = self.epoch();
        if self.is_revoked() {
            return Err(Failure::usage(format!("rank {}: the communicator was revoked", self.rank)));
        }
        self.ensure_dividable().map(|_| epoch)
    }

    /// Whether the communicator may be divided now, which a revoke does not hinder: the epoch in which that begins.
    pub(crate) fn ensure_dividable(&self) -> Outcome<u32> {
        let epoch = self.ensure_open()?;
        if self.resources.memory.is_suspended() {
            let text = format!("rank {}: the communicator is used while it is suspended", self.rank);
            return Err(Failure::usage(text).reported());
        }
        Ok(epoch)
    }

    /// The same, whether it is suspended or not.
    pub(crate) fn ensure_open(&self) -> Outcome<u32> {
        // In this order: what is revoked meanwhile belongs to the earlier epoch, and is stopped.
        let epoch = self.epoch();
        // A revoke sets the flag after it has closed the communicator.
        let stopped = self.resources.abort.is_set();
        let closed = self.closed.load(Ordering::Acquire);
        let aborted = closed != REVOKED && stopped;
        let unusable = if !self.has_started() && self.config.blocking {
            "its start has failed, and it can only be aborted"
        } else if aborted {
            "a communicator that shares its resources was aborted, and its operations end without a result"
        } else if closed == FINALIZED {
            "it was finalized"
        } else if stopped {
            // Of a revoke that has not come to its end: NCCL does not look how it is then, and finds everything stopped.
            return Ok(epoch);
        } else {
            return self.ensure_settled().map(|()| epoch);
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
        let place = |segment| self.resources.proxies.hold(segment, self.rank, self.size, &self.connected);
        self.started.get_or_init(|| self.segment.get().map(place));
        if let Some(segment) = self.segment.get().filter(|_| self.size > 1) {
            let (handle, device, collectives) = (self.handle, self.device, self.resources.collectives.clone());
            shared::add_neighbour(Neighbour {
                handle,
                device,
                nonce: segment.nonce(),
                collectives,
                family: self.family(),
            });
        }
    }

    /// Names those that it shares its resources with.
    fn family(&self) -> usize {
        Arc::as_ptr(&self.resources.progress).addr()
    }

    /// Others on its device that share nothing with it: what their ranks know them by, and how many collectives they have launched.
    pub(crate) fn neighbours(&self) -> [Option<(u64, u64)>; NEIGHBOURS] {
        shared::neighbours_of(self.device, self.family())
    }

    /// Whether they have.
    pub(crate) fn has_started(&self) -> bool {
        self.started.get().is_some()
    }

    /// How it is connected, if its ranks have met.
    pub(crate) fn place(&self) -> Option<&Arc<Place>> {
        self.started.get()?.as_ref()
    }

    /// It serves its peers no more, and uses none of theirs.
    pub(crate) fn let_go(&self) {
        self.place().into_iter().for_each(|place| self.resources.proxies.let_go(place));
    }

    /// Whether it was the last that let go, and so ends the threads for that.
    pub(crate) fn is_last(&self) -> bool {
        self.place().is_some_and(|place| place.is_last())
    }

    /// A peer that has not let go of this rank.
    pub(crate) fn missing(&self) -> Option<usize> {
        self.resources.proxies.missing(self.resources.abort.is_set())
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
        self.close(REVOKED)?;
        self.resources.abort.next_epoch();
        Ok(())
    }

    /// Stops everything that was launched, as a revoke does, and goes on then.
    pub(crate) fn interrupt(&self) {
        self.resources.abort.next_epoch();
        self.resources.abort.set();
        let progress = &self.resources.progress;
        progress.wait(*progress.launched.lock(), || false);
        self.resources.abort.take_back();
    }

    /// Whether it was.
    pub(crate) fn is_revoked(&self) -> bool {
        self.closed.load(Ordering::Acquire) == REVOKED
    }

    /// Whether it was finalized or revoked.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) != 0
    }

    /// The end of a revoke: the communicator is well again, as far as anybody asks, and what begins now is not stopped.
    pub(crate) fn end_revoke(&self) {
        self.resources.abort.take_back();
        let mut text = self.text.lock();
        *text = None;
        self.refused.store(false, Ordering::Release);
        self.state.store(ncclResult_t::ncclSuccess.0, Ordering::Release);
    }

    /// Whether not everything that was launched is done.
    pub(crate) fn has_work(&self) -> bool {
        let progress = &self.resources.progress;
        !progress.wait(*progress.launched.lock(), || true)
    }

    /// Waits until everything that was launched is done, also by those that share.
    pub(crate) fn drain(&self) -> Outcome {
        let progress = &self.resources.progress;
        let batches = *progress.launched.lock();
        // Operations of a failed communicator may never end; only an abort, which takes them away, ends this wait early.
        if !progress.wait(batches, || self.resources.abort.is_set()) {
            return Ok(());
        }
        match self.state() {
            ncclResult_t::ncclSuccess | ncclResult_t::ncclInProgress => Ok(()),
            code => Err(Failure::new(code, self.text().unwrap_or_default())),
        }
    }

    /// Tells the others that this rank will do nothing more, unless a fault has made it dead.
    pub(crate) fn part(&self, life: Life) {
        shared::remove_neighbour(self.handle);
        self.windows.leave_behind(self.segment.get().map(|segment| &segment.common().stranded));
        let left = self.registrations.clear();
        if left > 0 {
            report::violation(format!(
                "rank {} ends with {left} registrations, which NCCL takes apart with what it has freed before",
                self.rank
            ));
        }
        let left = self.graph_cache.len();
        if self.is_revoked() && left > 0 {
            report::violation(format!(
                "rank {} was revoked, and ends with {left} registrations of graphs, which NCCL takes apart with what it has freed before",
                self.rank
            ));
        }
        if let Some(segment) = self.segment.get() {
            if !self.has_started() {
                // It never will, so nobody else need find the way to it.
                register::complete(segment);
            }
            let rank = segment.rank(self.rank);
            if rank.life() == Life::Joined {
                rank.set_life(life);
            }
        }
    }
}

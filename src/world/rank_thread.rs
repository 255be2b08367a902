//! One rank of a generation: what it owns, and its threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use super::at::At;
use super::completion::{InFlight, Poller};
use super::failure_reason::Reason;
use super::guarded::{dropped, guarded};
use super::lane::Lane;
use super::order::Order;
use super::queue::Queue;
use super::task::{Begun, Task};
use super::threads::{spawn, wait_for};
use crate::cuda::{Device, Stream};
use crate::deadline::Deadline;
use crate::error::{self, Error, Result};
use crate::hint::Apart;
use crate::lock::{Mutex, MutexGuard};
use crate::nccl::{CommState, Communicator, Totals};

const STILL_AT_IT: &str = "the thread of the rank is still at it";

/// One rank of a generation, in this process.
#[derive(Debug)]
pub(super) struct RankThread {
    pub(super) generation: u64,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) device: Device,
    pub(super) stream: Stream,
    pub(super) queue: Arc<Queue>,
    pub(super) poller: Arc<Poller>,
    /// `None` once the generation has ended. Submitting threads use it; the thread of the rank has its own clone.
    communicator: Apart<Mutex<Option<Arc<Communicator>>>>,
    /// The request that its thread enqueues now.
    current: Apart<Mutex<Option<Arc<dyn Task>>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    stuck: AtomicBool,
    /// The ranks in other processes that have left in order, and how many operations each of them has issued.
    left: Mutex<Vec<(usize, Totals)>>,
}

/// The ranks of this process, of one generation.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) rank_threads: Vec<Arc<RankThread>>,
    pub(super) queues: Vec<(usize, Arc<Queue>)>,
    pub(super) order: Order,
    /// Why it has failed.
    pub(super) cause: OnceLock<Error>,
}

impl Generation {
    /// Returns the rank, if it is in this process.
    pub(super) fn rank_thread(&self, rank: usize) -> Option<&Arc<RankThread>> {
        self.rank_threads.iter().find(|rank_thread| rank_thread.rank == rank)
    }

    /// Announces to the sequencer that a request was put into the queue of a rank. Returns true if those that wait for room must
    /// [ask again](Self::ask_again).
    pub(super) fn announce(&self, lane: Option<&Lane>, rank: usize) -> bool {
        self.order.announce(lane, rank, &self.queues)
    }

    /// Has those that wait for room ask again.
    pub(super) fn ask_again(&self) {
        self.queues.iter().for_each(|(_, queue)| queue.ask_again());
    }

    /// Returns how many ranks there are, in all processes.
    pub(super) fn size(&self) -> usize {
        self.rank_threads.first().map_or(0, |rank_thread| rank_thread.size)
    }

    /// Returns how many requests are not answered.
    pub(super) fn left(&self) -> usize {
        self.rank_threads
            .iter()
            .map(|rank_thread| {
                rank_thread.queue.tasks() + rank_thread.poller.left() + usize::from(rank_thread.is_busy())
            })
            .sum()
    }

    /// Returns true if the devices are done with everything on the streams of the ranks here, also with requests that were answered
    /// when they were enqueued.
    pub(super) fn is_idle(&self) -> bool {
        self.rank_threads.iter().all(|rank_thread| rank_thread.stream.is_idle().unwrap_or(true))
    }

    /// Returns the error of a rank here that waits for a rank that has left.
    pub(super) fn waits_in_vain(&self) -> Option<Error> {
        self.rank_threads
            .iter()
            .find_map(|rank_thread| rank_thread.waits_in_vain(&rank_thread.left.lock(), &*rank_thread.communicator()?))
    }

    /// Returns how many operations its first rank here has issued.
    pub(super) fn issued(&self) -> Totals {
        let communicator = self.rank_threads.first().and_then(|rank_thread| rank_thread.communicator());
        communicator.map(|communicator| communicator.inner().issued.totals()).unwrap_or_default()
    }

    /// Returns true if one of its devices is lost.
    pub(super) fn lost(&self) -> Option<Error> {
        let mut errors = self.rank_threads.iter().filter_map(|rank_thread| rank_thread.stream.query().err());
        errors.find(|error| matches!(error, Error::DeviceLost { .. }))
    }

    /// Returns why one of its communicators has ended, if one has.
    pub(super) fn failure(&self) -> Option<Error> {
        self.rank_threads.iter().filter_map(|rank_thread| rank_thread.communicator()).find(|comm| is_over(comm)).map(
            |comm| {
                let ended = || Error::Aborted { operation: "World", reason: "a communicator has ended".into() };
                comm.cause().unwrap_or_else(ended)
            },
        )
    }
}

impl RankThread {
    pub(super) fn new(
        generation: u64,
        communicator: Communicator,
        queue: Arc<Queue>,
        poller: Arc<Poller>,
    ) -> Result<Self> {
        Ok(Self {
            generation,
            rank: communicator.rank(),
            size: communicator.size(),
            device: communicator.device(),
            stream: Stream::precise(communicator.device())?,
            queue,
            poller,
            communicator: Apart(Mutex::new(Some(Arc::new(communicator)))),
            current: Apart::default(),
            threads: Mutex::default(),
            stuck: AtomicBool::new(false),
            left: Mutex::default(),
        })
    }

    pub(super) fn communicator(&self) -> Option<Arc<Communicator>> {
        self.communicator.0.lock().clone()
    }

    /// Takes the communicator out, to end it.
    pub(super) fn take_communicator(&self) -> Option<Arc<Communicator>> {
        self.communicator.0.lock().take()
    }

    /// Puts the communicator back.
    pub(super) fn put_back(&self, communicator: Arc<Communicator>) {
        *self.communicator.0.lock() = Some(communicator);
    }

    /// Returns the error of a request that has begun and was not done in time.
    pub(super) fn late(&self) -> Option<Error> {
        let current = self.current().clone().filter(|task| task.meta().deadline.expired());
        let begun = current.filter(|task| !task.waits() && !task.is_answered());
        begun.map(|task| self.poller.too_late(&task, STILL_AT_IT)).or_else(|| self.poller.late())
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<dyn Task>>> {
        self.current.0.lock()
    }

    /// Returns true if its thread is enqueuing a request.
    pub(super) fn is_busy(&self) -> bool {
        self.current().is_some()
    }

    /// Answers the request in which its thread is stuck, without returning the buffers.
    pub(super) fn give_up(&self, error: &Error) {
        let stuck = self.current().take();
        if let Some(task) = stuck {
            self.stuck.store(true, Ordering::Release);
            task.refuse(Reason::Failed, error.clone());
        }
    }

    /// Does the same if that request is too late, and the thread is not inside NCCL, from which an abort wakes it.
    pub(super) fn give_up_late(&self) {
        if !self.communicator().is_none_or(|communicator| communicator.inner().is_left()) {
            return;
        }
        let stuck = self.current().take_if(|task| task.meta().deadline.expired());
        if let Some(task) = stuck {
            self.stuck.store(true, Ordering::Release);
            task.refuse(Reason::Late, task.meta().late(STILL_AT_IT));
        }
    }

    /// Returns true if its thread stayed inside NCCL or a request of the user when the generation ended.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Acquire)
    }

    /// Starts its threads. They call `alarm` with errors that end the communicator and, if there are other ranks, with the error of each
    /// request that was not enqueued.
    pub(super) fn start(self: &Arc<Self>, spin: Duration, alarm: impl Fn(&Error) + Send + 'static) -> Result<()> {
        let (rank_thread, poller) = (Arc::clone(self), Arc::clone(&self.poller));
        let run = move || {
            rank_thread.run(spin, &alarm);
            rank_thread.poller.close();
        };
        let actor = spawn(format!("gpucomm-rank-{}", self.rank), run)?;
        let watcher = spawn(format!("gpucomm-done-{}", self.rank), move || poller.run());
        let mut threads = self.threads.lock();
        threads.push(actor);
        // If this thread cannot be started, the caller closes the queue, and the first thread ends.
        threads.push(watcher?);
        Ok(())
    }

    /// Waits for its threads, but not for those that are known to be stuck. Returns true if all have ended in time.
    pub(super) fn join(&self, deadline: &Deadline) -> bool {
        let now = Deadline::after(Duration::ZERO);
        let deadline = if self.is_stuck() { &now } else { deadline };
        let threads = std::mem::take(&mut *self.threads.lock());
        let ended = wait_for(&threads, deadline);
        if ended {
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
        ended
    }

    /// Runs the thread of the rank.
    fn run(&self, spin: Duration, alarm: &impl Fn(&Error)) {
        // A clone of its own: submitting threads lock the other one.
        let communicator = self.communicator();
        while let Some(task) = self.queue.pop(spin, &self.poller) {
            *self.current() = Some(Arc::clone(&task));
            // A panic in a completion of the user must not end this thread. The poller then takes the request.
            guarded(|| self.do_one(task, communicator.as_ref(), alarm));
            // Dropped outside of the lock.
            let done = self.current().take();
            dropped(done);
        }
    }

    fn do_one(&self, task: Arc<dyn Task>, communicator: Option<&Arc<Communicator>>, alarm: &impl Fn(&Error)) {
        let Some(communicator) = communicator else {
            task.refuse(Reason::Down, nothing());
            return;
        };
        let at = At::new(communicator, &self.stream, self.generation);
        match task.enqueue(&at) {
            Begun::Not => {}
            Begun::Failed(error) => {
                // An error that concerns the request alone leaves the communicator as it is.
                let lost = matches!(error, Error::DeviceLost { .. } | Error::Disagreement { .. });
                if lost || is_over(communicator) {
                    alarm(&error);
                } else if self.size > 1 && !matches!(error, Error::Suspended { .. }) {
                    // Other ranks may have enqueued it. Their next operation is then not the next one here.
                    let reason = format!("rank {} has not enqueued it, and other ranks may have: {error}", self.rank);
                    let reason = error::Cause::because(reason, error).of_rank(self.rank);
                    alarm(&Error::Aborted { operation: task.meta().operation, reason });
                }
            }
            Begun::Enqueued => {
                self.watch(task);
                if let Some(error) = self.waits_in_vain(&self.left.lock(), communicator) {
                    alarm(&error);
                }
            }
        }
    }

    /// Records that a rank in another process has left in order, and what it has issued. Returns the error of an operation here that
    /// waits for more of it.
    pub(super) fn leaves(&self, rank: usize, issued: Totals) -> Option<Error> {
        // Under the lock, so that an operation that is enqueued later sees it.
        let mut left = self.left.lock();
        left.push((rank, issued));
        self.waits_in_vain(&left, &*self.communicator()?)
    }

    /// Returns the error of an operation that was enqueued here and waits for a rank that has left.
    fn waits_in_vain(&self, left: &[(usize, Totals)], communicator: &Communicator) -> Option<Error> {
        if left.is_empty() {
            return None;
        }
        let issued = communicator.inner().issued.totals();
        let (rank, _) = left.iter().find(|(rank, theirs)| issued.waits_for(self.rank, *rank, theirs))?;
        let how = "has closed its world in good order, and takes part in nothing more".to_owned();
        Some(Error::Departed { operation: "World", rank: *rank, how })
    }

    /// Hands a request that was enqueued to its completion, which finds out when it is done.
    fn watch(&self, task: Arc<dyn Task>) {
        if task.meta().in_order {
            task.finish(Ok(()));
            return;
        }
        self.poller.expect(&task);
        let position = self.stream.in_flight().position();
        let recorded = match self.poller.event() {
            Some(event) => event.record(&self.stream).map(|()| event),
            None => self.stream.record(),
        };
        match recorded {
            Ok(event) => {
                let terms = Arc::clone(&task.meta().terms);
                let work = InFlight::new(task, (event, position), &self.poller, &self.stream);
                if let Some(completion) = terms.completion.get() {
                    completion.watch(work);
                }
            }
            Err(error) => self.poller.failed(&task, error),
        }
    }
}

fn nothing() -> Error {
    Error::Aborted { operation: "World", reason: "the generation has ended".into() }
}

/// Whether a communicator has ended, or was revoked. A request may suspend one, and another request resume it.
fn is_over(communicator: &Communicator) -> bool {
    !communicator.is_active() && communicator.state() != CommState::Suspended
}

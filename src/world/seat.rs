//! A rank of a generation: what it owns, and its threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use super::at::At;
use super::completion::{InFlight, Looks};
use super::guarded::{dropped, guarded};
use super::lane::Lane;
use super::order::Order;
use super::queue::Queue;
use super::task::{Begun, Task};
use super::threads::spawn;
use super::why::Reason;
use crate::cuda::{Device, Stream};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::hint::Apart;
use crate::lock::{Mutex, MutexGuard};
use crate::nccl::Communicator;

const STILL_AT_IT: &str = "the thread of the rank is still at it";

/// A rank of a generation.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) generation: u64,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) device: Device,
    pub(super) stream: Stream,
    pub(super) queue: Arc<Queue>,
    pub(super) looks: Arc<Looks>,
    /// `None` once the generation has ended. For who submits: the thread of the rank has its own.
    communicator: Apart<Mutex<Option<Arc<Communicator>>>>,
    /// What its thread enqueues now.
    current: Apart<Mutex<Option<Arc<dyn Task>>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    stuck: AtomicBool,
}

/// The ranks of this process, of one generation.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) seats: Vec<Arc<Seat>>,
    pub(super) queues: Vec<(usize, Arc<Queue>)>,
    pub(super) order: Order,
    /// Why it has failed.
    pub(super) cause: OnceLock<Error>,
}

impl Generation {
    /// The rank, where this process has it.
    pub(super) fn seat(&self, rank: usize) -> Option<&Arc<Seat>> {
        self.seats.iter().find(|seat| seat.rank == rank)
    }

    /// A request of a rank of it was put into its queue. Whether those who wait for room are to [ask again](Self::ask_again).
    pub(super) fn announce(&self, lane: Option<&Lane>, rank: usize) -> bool {
        self.order.announce(lane, rank, &self.queues)
    }

    /// Tells those who wait for room to ask again.
    pub(super) fn ask_again(&self) {
        self.queues.iter().for_each(|(_, queue)| queue.ask_again());
    }

    /// How many ranks there are, here and elsewhere.
    pub(super) fn size(&self) -> usize {
        self.seats.first().map_or(0, |seat| seat.size)
    }

    /// How many requests are not answered.
    pub(super) fn left(&self) -> usize {
        self.seats.iter().map(|seat| seat.queue.tasks() + seat.looks.left() + usize::from(seat.is_busy())).sum()
    }

    /// Whether one of its devices is lost.
    pub(super) fn lost(&self) -> Option<Error> {
        let mut errors = self.seats.iter().filter_map(|seat| seat.stream.query().err());
        errors.find(|error| matches!(error, Error::DeviceLost { .. }))
    }

    /// Why one of its communicators has ended, if one has.
    pub(super) fn failure(&self) -> Option<Error> {
        self.seats.iter().filter_map(|seat| seat.communicator()).find(|comm| !comm.is_active()).map(|comm| {
            let ended = || Error::Aborted { operation: "World", reason: "a communicator has ended".to_owned() };
            comm.cause().unwrap_or_else(ended)
        })
    }
}

impl Seat {
    pub(super) fn new(
        generation: u64,
        communicator: Communicator,
        queue: Arc<Queue>,
        looks: Arc<Looks>,
    ) -> Result<Self> {
        Ok(Self {
            generation,
            rank: communicator.rank(),
            size: communicator.size(),
            device: communicator.device(),
            stream: Stream::precise(communicator.device())?,
            queue,
            looks,
            communicator: Apart(Mutex::new(Some(Arc::new(communicator)))),
            current: Apart::default(),
            threads: Mutex::default(),
            stuck: AtomicBool::new(false),
        })
    }

    pub(super) fn communicator(&self) -> Option<Arc<Communicator>> {
        self.communicator.0.lock().clone()
    }

    /// The communicator, for who ends it.
    pub(super) fn take_communicator(&self) -> Option<Arc<Communicator>> {
        self.communicator.0.lock().take()
    }

    /// Gives it back.
    pub(super) fn put_back(&self, communicator: Arc<Communicator>) {
        *self.communicator.0.lock() = Some(communicator);
    }

    /// The error of what has begun, and was not done in time.
    pub(super) fn late(&self) -> Option<Error> {
        let current = self.current().clone().filter(|task| task.meta().deadline.expired());
        let begun = current.filter(|task| !task.waits() && !task.is_answered());
        begun.map(|task| self.looks.too_late(&task, STILL_AT_IT)).or_else(|| self.looks.late())
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<dyn Task>>> {
        self.current.0.lock()
    }

    /// Whether its thread is enqueuing something.
    pub(super) fn is_busy(&self) -> bool {
        self.current().is_some()
    }

    /// Answers what its thread is stuck in, without buffers.
    pub(super) fn give_up(&self, error: &Error) {
        let stuck = self.current().take();
        if let Some(task) = stuck {
            self.stuck.store(true, Ordering::Release);
            task.refuse(Reason::Failed, error.clone());
        }
    }

    /// The same, if that is too late, and the thread is not inside NCCL, which an abort wakes.
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

    /// Whether its thread was inside NCCL, or a request of the user's, for good when the generation ended.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Acquire)
    }

    /// Starts its threads. `alarm` is told of what ends the communicator, and, where there are other ranks, of each request that was not enqueued.
    pub(super) fn start(self: &Arc<Self>, spin: Duration, alarm: impl Fn(&Error) + Send + 'static) -> Result<()> {
        let (seat, looks) = (Arc::clone(self), Arc::clone(&self.looks));
        let run = move || {
            seat.run(spin, &alarm);
            seat.looks.close();
        };
        let actor = spawn(format!("gpucomm-rank-{}", self.rank), run)?;
        let watcher = spawn(format!("gpucomm-done-{}", self.rank), move || looks.run());
        let mut threads = self.threads.lock();
        threads.push(actor);
        // Where there is none, the queue is closed by who hears of it, and the first one ends.
        threads.push(watcher?);
        Ok(())
    }

    /// Waits for its threads; those that do not end in time, or are known to be stuck, are left to themselves. Whether all have ended.
    pub(super) fn join(&self, deadline: &Deadline) -> bool {
        let now = Deadline::after(Duration::ZERO);
        let deadline = if self.is_stuck() { &now } else { deadline };
        let threads = std::mem::take(&mut *self.threads.lock());
        let over = || Ok(threads.iter().all(JoinHandle::is_finished).then_some(()));
        let ended = matches!(deadline.until(over), Ok(Some(())));
        if ended {
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
        ended
    }

    /// What the thread of the rank does.
    fn run(&self, spin: Duration, alarm: &impl Fn(&Error)) {
        // Its own: who submits asks for it as well.
        let communicator = self.communicator();
        while let Some(task) = self.queue.pop(spin, &self.looks) {
            *self.current() = Some(Arc::clone(&task));
            // What a completion of the user's does must not end this thread; the request is looked after then.
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
                // An error of the request alone leaves the communicator as it is.
                let lost = matches!(error, Error::DeviceLost { .. } | Error::Disagreement { .. });
                if lost || !communicator.is_active() {
                    alarm(&error);
                } else if self.size > 1 {
                    // Others may have it: what comes next here is another one than what comes next there.
                    let reason = format!("rank {} has not enqueued it, and other ranks may have: {error}", self.rank);
                    alarm(&Error::Aborted { operation: task.meta().operation, reason });
                }
            }
            Begun::Enqueued => self.watch(task),
        }
    }

    /// Has somebody look when it is done.
    fn watch(&self, task: Arc<dyn Task>) {
        if task.meta().in_order {
            task.finish(Ok(()));
            return;
        }
        self.looks.expect(&task);
        let position = self.stream.in_flight().position();
        let recorded = match self.looks.event() {
            Some(event) => event.record(&self.stream).map(|()| event),
            None => self.stream.record(),
        };
        match recorded {
            Ok(event) => {
                let terms = Arc::clone(&task.meta().terms);
                let work = InFlight::new(task, (event, position), &self.looks, &self.stream);
                if let Some(completion) = terms.completion.get() {
                    completion.watch(work);
                }
            }
            Err(error) => self.looks.failed(&task, error),
        }
    }
}

fn nothing() -> Error {
    Error::Aborted { operation: "World", reason: "the generation has ended".to_owned() }
}

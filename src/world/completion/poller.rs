//! Polls the requests that a rank has enqueued on its device, and answers those that are done.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::cuda::{Event, Stream};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::lock::{Condvar, Mutex, MutexGuard};
use crate::nccl::Aborter;
use crate::world::failure_reason::Reason;
use crate::world::guarded::guarded;
use crate::world::task::Task;

/// How long the thread sleeps at most while it waits for a signal.
const NOW_AND_THEN: Duration = Duration::from_millis(20);

/// How long this thread leaves polling to the thread of the rank before it checks that the other still polls.
const ATTENDED: Duration = Duration::from_millis(1);

/// How long the device may still work on a request after a failure, until it is answered in any case.
const PATIENCE: Duration = Duration::from_secs(15);

const NOT_DONE: &str = "the device is not done with it";

/// A request that the device works on.
pub(in crate::world) struct Watch {
    pub(super) task: Arc<dyn Task>,
    pub(super) event: Event,
    /// The stream, and its position when the request is done.
    end: (Stream, u64),
    look: Look,
    /// Its number among the requests of its rank.
    number: u64,
    /// When its deadline was found to have passed, and the error of that.
    late: Option<(Instant, Error)>,
}

enum Look {
    Every(Duration),
    Rung(Arc<AtomicBool>),
}

impl Watch {
    /// `number` grows from one request to the next.
    pub(super) fn new(task: Arc<dyn Task>, event: Event, end: (Stream, u64), number: u64) -> Self {
        Self { task, event, end, look: Look::Every(Duration::ZERO), number, late: None }
    }

    pub(super) fn every(mut self, interval: Duration) -> Self {
        self.look = Look::Every(interval);
        self
    }

    pub(super) fn at_bell(mut self, rung: Arc<AtomicBool>) -> Self {
        self.look = Look::Rung(rung);
        self
    }
}

/// Called with the error when the communicator has failed, or its work is late.
pub(in crate::world) type Alarm = Box<dyn Fn(&Error) + Send + Sync>;

/// The requests of one rank that its device works on.
pub(in crate::world) struct Poller {
    list: Mutex<List>,
    changed: Condvar,
    /// How many requests are not answered.
    left: AtomicUsize,
    /// How many requests there were.
    made: AtomicU64,
    /// Requests that were handed to completions, also those that completions have handed on.
    out: Mutex<VecDeque<Weak<dyn Task>>>,
    /// Changes each time the thread of the rank polls, when it has nothing else to do; zero while it does not poll. Two threads
    /// that poll in turn make the driver's calls slower, above all those that enqueue.
    attended: AtomicU64,
    /// Why no request waits for the device any more, if that is so.
    given_up: OnceLock<Error>,
    /// Events for reuse.
    events: Mutex<Vec<Event>>,
    /// Called with failures.
    alarm: Alarm,
    /// The aborter of the communicator, which knows for which rank this one waits.
    knows: Aborter,
}

#[derive(Default)]
struct List {
    /// In the order of the stream, also if a completion has kept one for a while.
    watches: VecDeque<Watch>,
    closed: bool,
    /// A bell was rung.
    rung: bool,
}

impl List {
    fn put(&mut self, watch: Watch) {
        let at = self.watches.partition_point(|other| other.number < watch.number);
        self.watches.insert(at, watch);
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("left", &self.left()).finish_non_exhaustive()
    }
}

impl Poller {
    pub(in crate::world) fn new(knows: Aborter, alarm: Alarm) -> Arc<Self> {
        Arc::new(Self {
            list: Mutex::default(),
            changed: Condvar::new(),
            left: AtomicUsize::new(0),
            made: AtomicU64::new(0),
            out: Mutex::default(),
            attended: AtomicU64::new(0),
            given_up: OnceLock::new(),
            events: Mutex::default(),
            alarm,
            knows,
        })
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock()
    }

    /// Returns how many requests are on the device or not answered yet.
    pub(in crate::world) fn left(&self) -> usize {
        self.left.load(Ordering::Acquire)
    }

    fn out(&self) -> MutexGuard<'_, VecDeque<Weak<dyn Task>>> {
        self.out.lock()
    }

    /// Announces one more request.
    pub(in crate::world) fn expect(&self, task: &Arc<dyn Task>) {
        self.left.fetch_add(1, Ordering::AcqRel);
        let mut out = self.out();
        // Requests are done in this order, except those that a completion keeps.
        while out.front().is_some_and(|first| first.upgrade().is_none_or(|first| first.is_answered())) {
            out.pop_front();
        }
        out.push_back(Arc::downgrade(task));
    }

    /// Returns the error of a request that was not done in time, also if a completion has it.
    pub(in crate::world) fn late(&self) -> Option<Error> {
        let mut out = self.out();
        out.retain(|task| task.strong_count() > 0);
        let late = |task: &Arc<dyn Task>| task.meta().deadline.expired() && !task.is_answered();
        out.iter().filter_map(Weak::upgrade).find(late).map(|task| self.too_late(&task, NOT_DONE))
    }

    /// Returns the error of a request that is not done in time. It names the rank that this one waits for, or says `what` if that is unknown.
    pub(in crate::world) fn too_late(&self, task: &Arc<dyn Task>, what: &str) -> Error {
        task.meta().late_as(self.knows.waits(), what)
    }

    /// Answers all requests, done or not.
    pub(in crate::world) fn give_up(&self, error: &Error) {
        let _ = self.given_up.set(error.clone());
        let out = std::mem::take(&mut *self.out());
        for task in out.iter().filter_map(Weak::upgrade) {
            let meta = task.meta();
            if meta.deadline.expired() {
                task.refuse(Reason::Late, meta.late(NOT_DONE));
            } else {
                task.refuse(Reason::Failed, error.later(meta.operation));
            }
        }
        self.wake();
    }

    /// Returns the number of the next request.
    pub(super) fn number(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns an event that is not in use.
    pub(in crate::world) fn event(&self) -> Option<Event> {
        self.events.lock().pop()
    }

    pub(super) fn push(&self, watch: Watch) {
        let mut list = self.list();
        list.put(watch);
        let wakes = list.watches.len() == 1 && self.attended.load(Ordering::Relaxed) == 0;
        drop(list);
        if wakes {
            self.changed.notify_one();
        }
    }

    pub(super) fn wake(&self) {
        self.list().rung = true;
        self.changed.notify_one();
    }

    /// Ends the thread once all requests are answered. No more may follow.
    pub(in crate::world) fn close(&self) {
        self.attended.store(0, Ordering::Relaxed);
        self.list().closed = true;
        self.changed.notify_one();
    }

    fn answer(&self, watch: Watch, result: Result<()>) {
        let Watch { task, event, late, end: (stream, position), .. } = watch;
        let result = match (result, late) {
            (Err(_), Some((_, late))) => Err(late),
            // The communicator was ended because of this, by the thread that noticed it first.
            (Err(Error::Aborted { .. }), None) if task.meta().deadline.expired() => Err(task.meta().late(NOT_DONE)),
            (result, _) => result,
        };
        if let Err(error) = &result {
            (self.alarm)(error);
        } else {
            // Later uses of the buffers then wait for this request only, not for what the stream was given since.
            stream.in_flight().see(position);
            self.events.lock().push(event);
        }
        task.finish(result);
        self.left.fetch_sub(1, Ordering::AcqRel);
    }

    /// Takes a request for which no event could be recorded, so that it cannot be polled.
    pub(in crate::world) fn failed(&self, task: &Arc<dyn Task>, error: Error) {
        (self.alarm)(&error);
        task.finish(Err(error));
        self.left.fetch_sub(1, Ordering::AcqRel);
    }

    /// Polls a request once. Returns it if it is not done.
    fn look(&self, mut watch: Watch) -> Option<Watch> {
        match watch.event.query() {
            Ok(true) => self.answer(watch, Ok(())),
            Err(error) => {
                let operation = watch.task.meta().operation;
                self.answer(watch, Err(error.met_by(operation)));
            }
            Ok(false) => {
                if let Some(error) = self.given_up.get() {
                    self.answer(watch, Err(error.clone()));
                    return None;
                }
                match &watch.late {
                    Some((since, late)) if since.elapsed() >= PATIENCE => {
                        let late = late.clone();
                        self.answer(watch, Err(late));
                        return None;
                    }
                    None if watch.task.meta().deadline.expired() => {
                        let late = self.too_late(&watch.task, NOT_DONE);
                        (self.alarm)(&late);
                        watch.late = Some((Instant::now(), late));
                    }
                    _ => {}
                }
                return Some(watch);
            }
        }
        None
    }

    /// Waits on this thread until a request is done.
    pub(super) fn wait_for(&self, watch: Watch) {
        let deadline = Deadline::after(Duration::MAX);
        let mut watch = Some(watch);
        let waited = deadline.until(|| {
            watch = watch.take().and_then(|watch| self.look(watch));
            Ok(watch.is_none().then_some(()))
        });
        debug_assert!(waited.is_ok());
    }

    /// Called by the thread of the rank when it begins to poll, as it has nothing else to do.
    pub(in crate::world) fn attend(&self) {
        let number = self.attended.load(Ordering::Relaxed) + 1;
        self.attended.store(number, Ordering::Relaxed);
    }

    /// Polls the first request once, on the thread of the rank while it spins. Requests that wait for a bell are left to the other thread.
    pub(in crate::world) fn glance(&self) {
        if self.left() == 0 {
            return;
        }
        let mut list = self.list();
        if list.watches.front().is_some_and(|watch| matches!(watch.look, Look::Rung(_))) {
            drop(list);
            self.leave();
            return;
        }
        self.attend();
        let Some(watch) = list.watches.pop_front() else { return };
        drop(list);
        if let Some(watch) = guarded(|| self.look(watch)).flatten() {
            self.list().put(watch);
        }
    }

    /// Called by the thread of the rank when it polls no more.
    pub(in crate::world) fn leave(&self) {
        if self.attended.swap(0, Ordering::Relaxed) != 0 {
            drop(self.list());
            self.changed.notify_one();
        }
    }

    /// Returns true if the thread of the rank has polled since the last call.
    fn is_attended(&self, seen: &mut u64) -> bool {
        let now = self.attended.load(Ordering::Relaxed);
        now != 0 && std::mem::replace(seen, now) != now
    }

    /// Runs the thread, until this is closed and all requests are answered.
    pub(in crate::world) fn run(&self) {
        let mut seen = 0;
        loop {
            let mut list = self.list();
            if self.is_attended(&mut seen) {
                drop(self.changed.wait_timeout(list, ATTENDED));
                continue;
            }
            let Some(watch) = list.watches.pop_front() else {
                // If the generation was given up, requests that completions keep are answered here.
                if list.closed && (self.left() == 0 || self.given_up.get().is_some()) {
                    return;
                }
                // Completions answer the requests that they keep.
                drop(self.changed.wait_timeout(list, NOW_AND_THEN));
                continue;
            };
            list.rung = false;
            drop(list);
            // The other requests come after it on the same stream.
            if let Some(watch) = guarded(|| self.look(watch)).flatten() {
                self.sleep(watch);
            }
        }
    }

    /// Sleeps until it is time to poll `watch`, the first request, again.
    fn sleep(&self, watch: Watch) {
        let pause = match &watch.look {
            // Deadlines are kept also with a long interval.
            Look::Every(interval) => (*interval).min(NOW_AND_THEN),
            Look::Rung(rung) if rung.load(Ordering::Acquire) => Duration::from_micros(10),
            Look::Rung(_) => NOW_AND_THEN,
        };
        let waits = matches!(watch.look, Look::Rung(_));
        let mut list = self.list();
        list.put(watch);
        if pause < Duration::from_micros(20) {
            drop(list);
            std::thread::yield_now();
        } else if waits {
            drop(self.changed.wait_timeout_while(list, pause, |list| !list.rung));
        } else {
            drop(list);
            std::thread::sleep(pause);
        }
    }
}

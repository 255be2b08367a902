//! What a rank has on its device, and the thread that looks how far it is.

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
use crate::world::guarded::guarded;
use crate::world::task::Task;
use crate::world::why::Reason;

/// How long a thread sleeps that is told when there is something to see.
const NOW_AND_THEN: Duration = Duration::from_millis(20);

/// How long the thread that looks leaves it to the thread of the rank, until it sees whether that still does.
const ATTENDED: Duration = Duration::from_millis(1);

/// How long after a failure the device may still be at it, until the answer is given in any case.
const PATIENCE: Duration = Duration::from_secs(15);

const NOT_DONE: &str = "the device is not done with it";

/// One request of them.
pub(in crate::world) struct Watch {
    pub(super) task: Arc<dyn Task>,
    pub(super) event: Event,
    /// The stream, and where it stands when this is done.
    end: (Stream, u64),
    look: Look,
    /// Which one of those of its rank it is.
    number: u64,
    /// Since when it is too late, and what that is.
    late: Option<(Instant, Error)>,
}

enum Look {
    Every(Duration),
    Rung(Arc<AtomicBool>),
}

impl Watch {
    /// `number` grows from one to the next.
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

/// Who is told that the communicator has failed, or its work is late.
pub(in crate::world) type Alarm = Box<dyn Fn(&Error) + Send + Sync>;

/// What a rank has on its device.
pub(in crate::world) struct Looks {
    list: Mutex<List>,
    changed: Condvar,
    /// How many are not answered.
    left: AtomicUsize,
    /// How many there were.
    made: AtomicU64,
    /// What was handed to completions, whoever has it now.
    out: Mutex<VecDeque<Weak<dyn Task>>>,
    /// Another number for each look of the thread of the rank, which has nothing else to do; zero where it does not look. Two threads that ask in turn make
    /// the driver's calls slower, those that enqueue above all.
    attended: AtomicU64,
    /// Nobody waits for the device any more, and why.
    given_up: OnceLock<Error>,
    /// Events that are used again.
    events: Mutex<Vec<Event>>,
    /// What is told of failures.
    alarm: Alarm,
    /// Of the communicator: it knows for whom the rank waits.
    knows: Aborter,
}

#[derive(Default)]
struct List {
    /// In the order in which the stream has them, whoever has held one back or looks at it.
    watches: VecDeque<Watch>,
    closed: bool,
    /// Somebody has rung.
    rung: bool,
}

impl List {
    fn put(&mut self, watch: Watch) {
        let at = self.watches.partition_point(|other| other.number < watch.number);
        self.watches.insert(at, watch);
    }
}

impl fmt::Debug for Looks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Looks").field("left", &self.left()).finish_non_exhaustive()
    }
}

impl Looks {
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

    /// How many requests are on the device, or were not answered yet.
    pub(in crate::world) fn left(&self) -> usize {
        self.left.load(Ordering::Acquire)
    }

    fn out(&self) -> MutexGuard<'_, VecDeque<Weak<dyn Task>>> {
        self.out.lock()
    }

    /// One more will come.
    pub(in crate::world) fn expect(&self, task: &Arc<dyn Task>) {
        self.left.fetch_add(1, Ordering::AcqRel);
        let mut out = self.out();
        // They are done in this order, but for what a completion holds back.
        while out.front().is_some_and(|first| first.upgrade().is_none_or(|first| first.is_answered())) {
            out.pop_front();
        }
        out.push_back(Arc::downgrade(task));
    }

    /// The error of one that was not done in time, whoever has it.
    pub(in crate::world) fn late(&self) -> Option<Error> {
        let mut out = self.out();
        out.retain(|task| task.strong_count() > 0);
        let late = |task: &Arc<dyn Task>| task.meta().deadline.expired() && !task.is_answered();
        out.iter().filter_map(Weak::upgrade).find(late).map(|task| self.too_late(&task, NOT_DONE))
    }

    /// The error of one that is not done in time: for whom the rank waits, if that is known, or else `what`.
    pub(in crate::world) fn too_late(&self, task: &Arc<dyn Task>, what: &str) -> Error {
        task.meta().late_as(self.knows.waits(), what)
    }

    /// Answers all, done or not.
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

    /// Which one the next is.
    pub(super) fn number(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }

    /// An event that nobody uses.
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

    /// Nothing more comes: the thread ends when all is answered.
    pub(in crate::world) fn close(&self) {
        self.attended.store(0, Ordering::Relaxed);
        self.list().closed = true;
        self.changed.notify_one();
    }

    fn answer(&self, watch: Watch, result: Result<()>) {
        let Watch { task, event, late, end: (stream, position), .. } = watch;
        let result = match (result, late) {
            (Err(_), Some((_, late))) => Err(late),
            // It was ended for that, by who saw it first.
            (Err(Error::Aborted { .. }), None) if task.meta().deadline.expired() => Err(task.meta().late(NOT_DONE)),
            (result, _) => result,
        };
        if let Err(error) = &result {
            (self.alarm)(error);
        } else {
            // Who gets the buffers back, and uses them, does not wait for what the stream was given since.
            stream.in_flight().see(position);
            self.events.lock().push(event);
        }
        task.finish(result);
        self.left.fetch_sub(1, Ordering::AcqRel);
    }

    /// One that nobody can look at.
    pub(in crate::world) fn failed(&self, task: &Arc<dyn Task>, error: Error) {
        (self.alarm)(&error);
        task.finish(Err(error));
        self.left.fetch_sub(1, Ordering::AcqRel);
    }

    /// Looks at one: gives it back where it goes on.
    fn look(&self, mut watch: Watch) -> Option<Watch> {
        match watch.event.query() {
            Ok(true) => self.answer(watch, Ok(())),
            Err(error) => self.answer(watch, Err(error)),
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

    /// Waits for one on this thread.
    pub(super) fn wait_for(&self, watch: Watch) {
        let deadline = Deadline::after(Duration::MAX);
        let mut watch = Some(watch);
        let waited = deadline.until(|| {
            watch = watch.take().and_then(|watch| self.look(watch));
            Ok(watch.is_none().then_some(()))
        });
        debug_assert!(waited.is_ok());
    }

    /// The thread of the rank has nothing else to do from now on but to look.
    pub(in crate::world) fn attend(&self) {
        let number = self.attended.load(Ordering::Relaxed) + 1;
        self.attended.store(number, Ordering::Relaxed);
    }

    /// A look of the thread of the rank, which spins: whether the first is done. What waits for a bell is left to the other thread.
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

    /// The other thread looks from now on.
    pub(in crate::world) fn leave(&self) {
        if self.attended.swap(0, Ordering::Relaxed) != 0 {
            drop(self.list());
            self.changed.notify_one();
        }
    }

    /// Whether the thread of the rank has looked since this was asked last.
    fn is_attended(&self, seen: &mut u64) -> bool {
        let now = self.attended.load(Ordering::Relaxed);
        now != 0 && std::mem::replace(seen, now) != now
    }

    /// What the thread does, until it is closed and all is answered.
    pub(in crate::world) fn run(&self) {
        let mut seen = 0;
        loop {
            let mut list = self.list();
            if self.is_attended(&mut seen) {
                drop(self.changed.wait_timeout(list, ATTENDED));
                continue;
            }
            let Some(watch) = list.watches.pop_front() else {
                // What others keep is answered, where this has given up.
                if list.closed && (self.left() == 0 || self.given_up.get().is_some()) {
                    return;
                }
                // What others watch is answered by them.
                drop(self.changed.wait_timeout(list, NOW_AND_THEN));
                continue;
            };
            list.rung = false;
            drop(list);
            // The others come after it on the same stream.
            if let Some(watch) = guarded(|| self.look(watch)).flatten() {
                self.sleep(watch);
            }
        }
    }

    /// Sleeps until it is time to look at `watch` again, which was the first.
    fn sleep(&self, watch: Watch) {
        let pause = match &watch.look {
            // However seldom it is to look, deadlines are kept.
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

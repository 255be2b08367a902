//! Lines: how far streams have come, and the launch queues that they share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::lock::{Condvar, Mutex};
use crate::patience::Patience;
use crate::races::{Point, Track};
use crate::report;
use crate::settings::settings;

/// How a stream keeps the order of CUDA's legacy default stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It is that stream.
    Legacy,
    /// It waits for that stream, and is waited for.
    Blocking,
    /// Neither.
    NonBlocking,
}

/// How many tasks a stream was given, and how many are done.
#[derive(Debug)]
pub(crate) struct Line {
    pub manner: Manner,
    /// The ordinal of the device of its stream.
    pub device: i32,
    /// What its work comes after, where races are looked for.
    pub track: Option<Track>,
    /// How many were ever enqueued; changes under the lock of the stream's queue.
    submitted: AtomicU64,
    /// How many are done; only the stream's thread changes it.
    completed: AtomicU64,
    /// How many threads wait for progress.
    waiters: AtomicUsize,
    lock: Mutex<()>,
    progress: Condvar,
}

impl Line {
    /// Of a new stream.
    pub(crate) fn new(device: i32, manner: Manner) -> Arc<Self> {
        Arc::new(Self {
            manner,
            device,
            track: Track::new(device),
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            waiters: AtomicUsize::new(0),
            lock: Mutex::default(),
            progress: Condvar::new(),
        })
    }

    /// The last task that was enqueued.
    pub(crate) fn last(self: &Arc<Self>) -> Ticket {
        self.ticket(self.submitted.load(Ordering::Acquire))
    }

    fn ticket(self: &Arc<Self>, number: u64) -> Ticket {
        Ticket { line: self.clone(), number, point: self.track.as_ref().map(Track::point) }
    }

    /// The last task that was enqueued, if it is not done.
    pub(crate) fn unfinished(self: &Arc<Self>) -> Option<Ticket> {
        let last = self.submitted.load(Ordering::Acquire);
        (self.completed.load(Ordering::Acquire) < last).then(|| self.ticket(last))
    }

    /// So many tasks were enqueued; said by who holds the lock of the queue.
    pub(super) fn add(self: &Arc<Self>, tasks: u64) -> Ticket {
        // Only that lock's holder writes, so this is no race.
        let number = self.submitted.load(Ordering::Relaxed) + tasks;
        self.submitted.store(number, Ordering::Release);
        self.ticket(number)
    }

    /// One more task is done; said by the stream's thread.
    pub(super) fn advance(&self) {
        let done = self.completed.load(Ordering::Relaxed) + 1;
        // Either this sees the waiter, or the waiter sees this.
        self.completed.store(done, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            // Who has looked and not gone to sleep yet holds the lock.
            drop(self.lock.lock());
            self.progress.notify_all();
        }
    }
}

/// A place in the order of a stream: done when the first `number` tasks are.
#[derive(Debug, Clone)]
pub(crate) struct Ticket {
    line: Arc<Line>,
    number: u64,
    /// What is enqueued up to here, and what that comes after, where races are looked for.
    pub point: Option<Point>,
}

impl Ticket {
    /// Which task it is, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether it is of that line.
    pub(crate) fn is_of(&self, line: &Arc<Line>) -> bool {
        Arc::ptr_eq(&self.line, line)
    }

    /// Whether the stream has come this far. What the work before wrote is then visible to the caller.
    pub(crate) fn done(&self) -> bool {
        self.line.completed.load(Ordering::Acquire) >= self.number
    }

    /// The host has seen that the stream has come this far.
    pub(crate) fn see(&self) {
        if let Some(point) = &self.point {
            point.see();
        }
    }

    /// Sleeps until the stream has come this far, which the host then has seen.
    pub(crate) fn wait(&self) {
        self.wait_until(None);
        self.see();
    }

    /// Sleeps until the stream has come this far, but no longer than `time`. Whether it has.
    pub(crate) fn wait_for(&self, time: Duration) -> bool {
        self.wait_until(Some(Instant::now() + time))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> bool {
        if self.done() {
            return true;
        }
        let line = &self.line;
        let done = || line.completed.load(Ordering::SeqCst) >= self.number;
        let mut guard = line.lock.lock();
        line.waiters.fetch_add(1, Ordering::SeqCst);
        while !done() {
            guard = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => line.progress.wait(guard),
                Some(Duration::ZERO) => break,
                Some(left) => line.progress.wait_timeout(guard, left),
            };
        }
        line.waiters.fetch_sub(1, Ordering::SeqCst);
        done()
    }
}

// Channels: the launch queues of a device, which its streams share.
//
// As was seen on H200s, a device has eight, each with 1021 entries (GPUCOMM_EMULATOR_QUEUE), and streams take them in turn.
// Kernels, copies and fills take an entry until they are done; host functions, and events that are recorded or waited for,
// take none. Whoever enqueues more is blocked inside the call, whatever happens meanwhile.
//
// With GPUCOMM_EMULATOR_QUEUE_ORDER=1, what is in one queue begins in the order in which it was enqueued, as on GPUs: a
// kernel that waits for the one before it on its stream holds up the streams that share its queue.

/// How many a device has.
pub(crate) const CHANNELS: usize = 8;

/// One launch queue.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    taken: Mutex<usize>,
    freed: Condvar,
    /// How many turns were given, and how many tasks have begun, where they begin in order.
    given: Mutex<u64>,
    begun: Mutex<u64>,
    next: Condvar,
}

impl Channel {
    /// Takes so many entries, when there is room for all of them; or the whole queue, where they are more than that.
    pub fn take(&self, device: i32, entries: usize) {
        let most = settings().queue;
        let mut taken = self.taken.lock();
        let full = |taken: usize| taken > 0 && taken + entries > most;
        if full(*taken) {
            let mut patience = Patience::new();
            while full(*taken) {
                let call = report::call();
                patience.check(|| format!("a launch queue of device {device} is full ({most} entries): {call}"));
                let slice = Duration::from_millis(50);
                taken = self.freed.wait_timeout(taken, slice);
            }
        }
        *taken += entries;
    }

    /// Gives them back.
    pub fn give(&self, entries: usize) {
        *self.taken.lock() -= entries;
        // Who wants many may still have to wait where another need not.
        self.freed.notify_all();
    }

    /// Has `add` append the task that has the next turn. Under one lock, so that the tasks of a stream have their turns in its order.
    pub fn in_turn<T>(&self, add: impl FnOnce(u64) -> T) -> T {
        let mut given = self.given.lock();
        let turn = *given;
        *given += 1;
        add(turn)
    }

    /// The task that has this turn comes next on its stream: waits until all before it have begun.
    pub fn begin(&self, turn: u64) {
        let mut begun = self.begun.lock();
        while *begun != turn {
            begun = self.next.wait(begun);
        }
        *begun += 1;
        drop(begun);
        self.next.notify_all();
    }
}

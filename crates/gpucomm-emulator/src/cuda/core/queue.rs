//! Queues: what a stream has still to do, and who does it.
//!
//! A stream has a thread, which sleeps where there is nothing to do. Waking it takes longer than a small operation. So after some light work it
//! dozes for a while, and more of that is left to whoever asks whether the stream is done: that thread helps. Who helps never waits; what
//! cannot go on stays where it is, and the thread of the stream takes it when nothing has moved for [`DOZE`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::cuda::core::line::{Channel, Line, Ticket};
use crate::cuda::core::plan::Lanes;
use crate::cuda::core::work::Step;
use crate::lock::{Condvar, Mutex, MutexGuard};
use crate::memory::heap::Block;

/// How long a thread that dozes leaves what is light to others. The kernel adds 50 µs.
const DOZE: Duration = Duration::from_micros(50);

/// After how many of these in which nothing moved it sleeps.
const ROUNDS: u32 = 20;

/// What the thread of a stream does.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Thread {
    /// There is none.
    #[default]
    Missing,
    /// It works, or was woken to do so.
    Works,
    /// It looks again soon.
    Dozes,
    /// It sleeps until it is woken.
    Sleeps,
}

/// After how many light ones in a row others are left some. Who mixes them with what takes long has the thread awake for that.
const STREAK: u32 = 8;

#[derive(Debug, Default)]
struct State {
    tasks: VecDeque<Task>,
    thread: Thread,
    /// Somebody else is at the first task, which is not among the others meanwhile.
    helped: bool,
    /// How often something was added, or done by others.
    moves: u64,
    /// How many in a row, up to the last that was added, were light.
    streak: u32,
    /// The thread ends when nothing is left to do.
    closing: bool,
}

impl State {
    /// Whether the thread has to be woken, which it counts as from now on.
    fn wakes(&mut self) -> bool {
        let rests = matches!(self.thread, Thread::Dozes | Thread::Sleeps);
        if rests {
            self.thread = Thread::Works;
        }
        rests
    }
}

/// The queue of a stream.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    /// Something is left to others, who look here first: they ask often, and the lock is the thread's.
    offers: AtomicBool,
}

impl Queue {
    /// Starts the thread, if there is none.
    pub(super) fn start<E>(&self, start: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut state = self.state.lock();
        if state.thread == Thread::Missing {
            start()?;
            state.thread = Thread::Works;
        }
        Ok(())
    }

    /// Adds a task behind these waits, on the queue of the stream that has come so far on `line`.
    pub(super) fn add(&self, line: &Arc<Line>, before: Vec<Ticket>, task: Task) -> Ticket {
        let is_light = before.is_empty() && task.is_light();
        let added = before.len() as u64 + 1;
        let mut state = self.state.lock();
        state.tasks.extend(before.into_iter().map(Task::Wait));
        state.tasks.push_back(task);
        state.moves += 1;
        state.streak = if is_light { state.streak.saturating_add(1) } else { 0 };
        let ticket = line.add(added);
        let leaves = is_light && state.thread == Thread::Dozes;
        let wakes = !leaves && state.wakes();
        if leaves {
            self.offers.store(true, Ordering::Release);
        }
        drop(state);
        if wakes {
            self.wake.notify_one();
        }
        ticket
    }

    /// Ends the thread once all is done.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        state.wakes();
        drop(state);
        self.wake.notify_one();
    }

    /// What the thread does: all tasks in order, until the queue is closed.
    pub(super) fn work(&self, mut perform: impl FnMut(Task)) {
        let mut state = self.state.lock();
        loop {
            state.thread = Thread::Works;
            self.offers.store(false, Ordering::Relaxed);
            if state.helped {
                // Who helps sees that this one waits.
                state = self.wake.wait(state);
            } else if let Some(task) = state.tasks.pop_front() {
                drop(state);
                perform(task);
                state = self.state.lock();
            } else if state.closing {
                state.thread = Thread::Missing;
                return;
            } else {
                state = self.rest(state);
            }
        }
    }

    /// Dozes for a while, if it does, and sleeps then, until there is something to do for the thread.
    fn rest<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let (mut quiet, mut moves) = (0, state.moves);
        while state.streak >= STREAK && quiet < ROUNDS {
            state.thread = Thread::Dozes;
            state = self.wake.wait_timeout(state, DOZE);
            if state.thread == Thread::Works {
                return state;
            }
            if state.moves != moves {
                (quiet, moves) = (0, state.moves);
            } else if state.tasks.is_empty() && !state.helped {
                quiet += 1;
            } else {
                return state;
            }
        }
        state.thread = Thread::Sleeps;
        while state.thread == Thread::Sleeps {
            state = self.wake.wait(state);
        }
        state
    }

    /// Lets the caller do what is light and comes first, while the thread dozes. `attempt` gives back what could not be done to its end.
    pub(super) fn help(&self, mut attempt: impl FnMut(Task) -> Option<Task>) {
        if !self.offers.load(Ordering::Acquire) {
            return;
        }
        let Some(mut state) = self.state.try_lock() else { return };
        if state.helped {
            return;
        }
        while state.thread == Thread::Dozes && state.tasks.front().is_some_and(Task::is_light) {
            let Some(task) = state.tasks.pop_front() else { return };
            state.helped = true;
            drop(state);
            let left = attempt(task);
            state = self.state.lock();
            state.helped = false;
            let stays = left.is_some();
            match left {
                Some(task) => state.tasks.push_front(task),
                None => state.moves += 1,
            }
            if state.thread == Thread::Works {
                self.wake.notify_one();
            }
            if stays {
                return;
            }
        }
        self.offers.store(false, Ordering::Relaxed);
    }
}

/// One entry of a queue.
pub(crate) enum Task {
    /// Work on data; dropped without running once the device has failed.
    Run(Step),
    /// The pieces of a graph, and how they are done.
    Graph(Vec<Step>, Arc<Lanes>),
    /// Nothing before that ticket is done.
    Wait(Ticket),
    /// All tasks before this turn of the launch queue have begun.
    Turn(&'static Channel, u64),
    /// The time when the stream came here.
    Stamp(Arc<OnceLock<Instant>>),
    /// The end of an allocation in stream order. It comes also when the device has failed: others may wait for the memory.
    Free(Arc<Block>),
}

impl Task {
    /// Whether it is done in less time than the thread of its stream needs to wake up, wherever it need not wait.
    pub fn is_light(&self) -> bool {
        matches!(self, Self::Run(step) if step.is_light())
    }

    /// Goes on with one that is light, as far as that needs no wait: what is left of it, if it is not done.
    pub fn attempt(self) -> Option<Self> {
        let Self::Run(step) = self else { return Some(self) };
        step.attempt().map(Self::Run)
    }

    /// How many places it takes in the launch queue.
    pub fn entries(&self) -> usize {
        match self {
            Self::Run(step) => usize::from(step.takes_an_entry()),
            Self::Graph(steps, _) => steps.iter().filter(|step| step.takes_an_entry()).count(),
            Self::Wait(_) | Self::Turn(..) | Self::Stamp(_) | Self::Free(_) => 0,
        }
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run(step) => write!(f, "Run({})", step.name),
            Self::Graph(steps, _) => write!(f, "Graph({})", steps.len()),
            Self::Wait(ticket) => write!(f, "Wait({})", ticket.number()),
            Self::Turn(_, turn) => write!(f, "Turn({turn})"),
            Self::Stamp(_) => write!(f, "Stamp"),
            Self::Free(block) => write!(f, "Free({:#x})", block.offset),
        }
    }
}

//! The requests that wait for a rank.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::completion::Looks;
use super::guarded::Wakers;
use super::lane::Lane;
use super::task::Task;
use super::why::Reason;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::hint::Apart;

/// The requests that wait for a rank, up to a bound.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Something has come, for the thread of the rank.
    came: Condvar,
    /// There is room, for who waits for it.
    left: Condvar,
    /// Changes whenever something comes: for who spins.
    signs: Apart<AtomicUsize>,
    bound: usize,
    sequenced: bool,
}

#[derive(Debug, Default)]
struct State {
    /// As they came; where there is a sequencer, nothing.
    tasks: VecDeque<Arc<dyn Task>>,
    /// Where there is one.
    lanes: HashMap<Arc<str>, VecDeque<Arc<dyn Task>>>,
    /// What it says: whose turn it is.
    turns: VecDeque<Arc<str>>,
    /// How many there are, with those that have a place.
    held: usize,
    closed: Option<(Reason, Error)>,
    draining: bool,
    /// Whether the thread of the rank sleeps: who finds it awake makes no call of the system.
    asleep: bool,
    /// How many threads wait for room.
    waiting: usize,
    /// Futures that wait for room.
    wakers: Vec<Waker>,
    /// Of what was refused as too late while no rank took it.
    missed: Option<Error>,
}

/// What waited in a queue that was closed: it is answered, and who waits for room is told, once no lock is held.
#[must_use = "it waits for an answer"]
pub(super) struct Left {
    tasks: Vec<Arc<dyn Task>>,
    wakers: Wakers,
}

impl Left {
    /// Answers what waited.
    pub(super) fn refuse(self, reason: Reason, cause: &Error) {
        for task in self.tasks {
            let meta = task.meta();
            // What comes too late is told so, whatever it has brought about.
            if meta.deadline.expired() && reason == Reason::Down {
                task.refuse(Reason::Late, meta.late("it has not begun"));
            } else {
                task.refuse(reason, cause.later(meta.operation));
            }
        }
        self.wakers.wake();
    }
}

/// A place in a queue, for one request.
#[derive(Debug)]
pub(super) struct Place {
    queue: Option<Arc<Queue>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            let mut state = queue.state();
            state.held -= 1;
            queue.has_room(state).wake();
        }
    }
}

/// The name of the lane of what has none.
const NO_LANE: &str = "";

impl Queue {
    pub(super) fn new(bound: usize, sequenced: bool) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            came: Condvar::new(),
            left: Condvar::new(),
            signs: Apart::default(),
            bound: bound.max(1),
            sequenced,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the thread of the rank, which alone waits for it.
    fn has_come(&self, state: MutexGuard<'_, State>) {
        let asleep = state.asleep;
        drop(state);
        self.signs.0.fetch_add(1, Ordering::Release);
        if asleep {
            self.came.notify_one();
        }
    }

    /// Tells those who wait for room, but for futures, which are to be woken.
    fn has_room(&self, mut state: MutexGuard<'_, State>) -> Wakers {
        let (wakers, waiting) = (std::mem::take(&mut state.wakers), state.waiting);
        drop(state);
        if waiting > 0 {
            self.left.notify_all();
        }
        Wakers(wakers)
    }

    /// Tells those who wait for room to ask again.
    pub(super) fn ask_again(&self) {
        self.has_room(self.state()).wake();
    }

    /// Whether the rank waits for a request of this lane, and for nothing else: it gets in, however many of others wait.
    fn is_next(&self, state: &State, lane: Option<&Lane>) -> bool {
        let name = lane.map_or(NO_LANE, |lane| &*lane.name);
        self.sequenced
            && state.turns.front().is_some_and(|turn| &**turn == name)
            && state.lanes.get(name).is_none_or(VecDeque::is_empty)
    }

    fn take_place(self: &Arc<Self>, state: &mut State, lane: Option<&Lane>) -> Result<Option<Place>, (Reason, Error)> {
        if let Some(closed) = &state.closed {
            return Err(closed.clone());
        }
        if state.held >= self.bound && !self.is_next(state, lane) {
            return Ok(None);
        }
        state.held += 1;
        Ok(Some(Place { queue: Some(Arc::clone(self)) }))
    }

    /// A place, where there is one before the deadline.
    pub(super) fn place(
        self: &Arc<Self>,
        lane: Option<&Lane>,
        deadline: Option<&Deadline>,
    ) -> Result<Place, (Reason, Error)> {
        let mut state = self.state();
        loop {
            if let Some(place) = self.take_place(&mut state, lane)? {
                return Ok(place);
            }
            let Some(deadline) = deadline.filter(|deadline| !deadline.expired()) else { return Err(self.full()) };
            state.waiting += 1;
            let waited = self.left.wait_timeout(state, deadline.remaining());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
    }

    fn full(&self) -> (Reason, Error) {
        let reason = format!("the queue of the rank is full: it has room for {} requests", self.bound);
        (Reason::Full, Error::InvalidUsage { operation: "submit", reason })
    }

    /// The same for a future: `None` where `waker` is told when to ask again.
    pub(super) fn poll_place(
        self: &Arc<Self>,
        lane: Option<&Lane>,
        waker: &Waker,
    ) -> Result<Option<Place>, (Reason, Error)> {
        let mut state = self.state();
        let place = self.take_place(&mut state, lane)?;
        if place.is_none() && !state.wakers.iter().any(|known| known.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
        Ok(place)
    }

    /// Puts a request into its place, or into another one where that is of a queue that there was before; where the queue was closed
    /// meanwhile, says why it was.
    pub(super) fn push(self: &Arc<Self>, place: &mut Place, task: Arc<dyn Task>) -> Result<(), (Reason, Error)> {
        let mut state = self.state();
        if let Some(closed) = state.closed.clone() {
            drop(state);
            return Err(closed);
        }
        // Its place is that of the request from now on.
        let own = if place.queue.as_ref().is_some_and(|queue| Arc::ptr_eq(queue, self)) {
            place.queue.take()
        } else {
            match self.take_place(&mut state, task.meta().lane.as_ref())? {
                Some(mut other) => other.queue.take(),
                None => return Err(self.full()),
            }
        };
        if self.sequenced {
            let name = task.meta().lane.as_ref().map_or_else(|| NO_LANE.into(), |lane| Arc::clone(&lane.name));
            state.lanes.entry(name).or_default().push_back(task);
        } else {
            state.tasks.push_back(task);
        }
        self.has_come(state);
        drop(own);
        Ok(())
    }

    /// The sequencer says that the next one is of this lane. Who waits for room is to [ask again](Self::ask_again).
    pub(super) fn turn(&self, lane: Arc<str>) {
        let mut state = self.state();
        state.turns.push_back(lane);
        self.has_come(state);
    }

    fn take(&self, state: &mut State) -> Option<Arc<dyn Task>> {
        if !self.sequenced {
            return state.tasks.pop_front();
        }
        let lane = state.turns.front()?;
        let waiting = state.lanes.get_mut(lane)?;
        let task = waiting.pop_front()?;
        if waiting.is_empty() {
            state.lanes.remove(lane);
        }
        state.turns.pop_front();
        Some(task)
    }

    /// The next request, for the thread of the rank, which looks for one for so long before it sleeps, and meanwhile for what is done; `None` where
    /// there are no more.
    pub(super) fn pop(&self, spin: Duration, looks: &Looks) -> Option<Arc<dyn Task>> {
        let mut state = self.state();
        loop {
            if let Some(task) = self.take(&mut state) {
                state.held -= 1;
                self.has_room(state).wake();
                return Some(task);
            }
            if state.closed.is_some() && (!state.draining || state.held == 0) {
                return None;
            }
            if !spin.is_zero() {
                let (signs, since) = (self.signs.0.load(Ordering::Acquire), Instant::now());
                drop(state);
                while self.signs.0.load(Ordering::Acquire) == signs && since.elapsed() < spin {
                    looks.glance();
                    std::hint::spin_loop();
                }
                let changed = self.signs.0.load(Ordering::Acquire) != signs;
                state = self.state();
                if changed {
                    continue;
                }
                if let Some(task) = self.take(&mut state) {
                    state.held -= 1;
                    self.has_room(state).wake();
                    return Some(task);
                }
                if state.closed.is_some() {
                    continue;
                }
            }
            if !spin.is_zero() {
                looks.leave();
            }
            state.asleep = true;
            state = self.came.wait_timeout(state, SLEEP).unwrap_or_else(PoisonError::into_inner).0;
            state.asleep = false;
        }
    }

    /// Takes no more requests; those that wait are still done where it `drains`, and given back else.
    pub(super) fn close(&self, reason: Reason, error: &Error, drains: bool) -> Left {
        let mut state = self.state();
        state.closed.get_or_insert_with(|| (reason, error.clone()));
        state.draining = drains;
        let mut tasks = Vec::new();
        if !drains {
            tasks.extend(state.tasks.drain(..));
            tasks.extend(state.lanes.drain().flat_map(|(_, lane)| lane));
            state.turns.clear();
            state.held -= tasks.len();
        }
        self.signs.0.fetch_add(1, Ordering::Release);
        let wakers = self.has_room(state);
        self.came.notify_all();
        Left { tasks, wakers }
    }

    /// Those that have no answer, and whose deadline has passed: of what was cancelled with another one as well. They keep their turn.
    pub(super) fn late(&self) -> Vec<Arc<dyn Task>> {
        let state = self.state();
        let all = state.tasks.iter().chain(state.lanes.values().flatten());
        let mut late: Vec<_> = all.filter(|task| task.meta().deadline.expired()).cloned().collect();
        drop(state);
        late.retain(|task| !task.is_answered());
        late
    }

    /// Something that waits is refused as too late, and no rank has begun with this queue: others may still have theirs.
    pub(super) fn miss(&self, error: Error) {
        self.state().missed.get_or_insert(error);
    }

    /// Whether something was.
    pub(super) fn missed(&self) -> Option<Error> {
        self.state().missed.clone()
    }

    /// The lanes of those that wait, each as often as it has some.
    pub(super) fn waiting(&self) -> Vec<Option<Lane>> {
        let state = self.state();
        state.tasks.iter().chain(state.lanes.values().flatten()).map(|task| task.meta().lane.clone()).collect()
    }

    /// How many requests wait.
    pub(super) fn tasks(&self) -> usize {
        let state = self.state();
        state.tasks.len() + state.lanes.values().map(VecDeque::len).sum::<usize>()
    }

    /// The same, with room that somebody has for one.
    pub(super) fn len(&self) -> usize {
        self.state().held
    }
}

/// How long the thread of a rank sleeps before it looks again, whatever comes.
const SLEEP: Duration = Duration::from_millis(500);

//! The requests that wait for a rank.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::lane::Lane;
use super::task::Task;
use super::why::Reason;
use crate::deadline::Deadline;
use crate::error::Error;

/// The requests that wait for a rank, up to a bound.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Something has come, for the thread of the rank.
    came: Condvar,
    /// There is room, for who waits for it.
    left: Condvar,
    /// Changes whenever something comes: for who spins.
    signs: AtomicUsize,
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
    /// Futures that wait for room.
    wakers: Vec<Waker>,
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
            queue.has_room(state);
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
            signs: AtomicUsize::new(0),
            bound: bound.max(1),
            sequenced,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those who wait for room.
    fn has_room(&self, mut state: MutexGuard<'_, State>) {
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.left.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn take_place(self: &Arc<Self>, state: &mut State) -> Result<Option<Place>, (Reason, Error)> {
        if let Some(closed) = &state.closed {
            return Err(closed.clone());
        }
        if state.held >= self.bound {
            return Ok(None);
        }
        state.held += 1;
        Ok(Some(Place { queue: Some(Arc::clone(self)) }))
    }

    /// A place, where there is one before the deadline.
    pub(super) fn place(self: &Arc<Self>, deadline: Option<&Deadline>) -> Result<Place, (Reason, Error)> {
        let mut state = self.state();
        loop {
            if let Some(place) = self.take_place(&mut state)? {
                return Ok(place);
            }
            let Some(deadline) = deadline.filter(|deadline| !deadline.expired()) else {
                let reason = format!("the queue of the rank is full: it has room for {} requests", self.bound);
                return Err((Reason::Full, Error::InvalidUsage { operation: "submit", reason }));
            };
            let waited = self.left.wait_timeout(state, deadline.remaining());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The same for a future: `None` where `waker` is told when to ask again.
    pub(super) fn poll_place(self: &Arc<Self>, waker: &Waker) -> Result<Option<Place>, (Reason, Error)> {
        let mut state = self.state();
        let place = self.take_place(&mut state)?;
        if place.is_none() && !state.wakers.iter().any(|known| known.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
        Ok(place)
    }

    /// Puts a request into its place; where the queue was closed meanwhile, says why it was.
    pub(super) fn push(&self, mut place: Place, task: Arc<dyn Task>) -> Result<(), (Reason, Error)> {
        let mut state = self.state();
        if let Some(closed) = state.closed.clone() {
            drop(state);
            return Err(closed);
        }
        // Its place is that of the request from now on.
        let held = place.queue.take();
        if self.sequenced {
            let name = task.meta().lane.as_ref().map_or_else(|| NO_LANE.into(), |lane| Arc::clone(&lane.name));
            state.lanes.entry(name).or_default().push_back(task);
        } else {
            state.tasks.push_back(task);
        }
        drop(state);
        drop(held);
        self.signs.fetch_add(1, Ordering::Release);
        self.came.notify_one();
        Ok(())
    }

    /// The sequencer says that the next one is of this lane.
    pub(super) fn turn(&self, lane: Arc<str>) {
        self.state().turns.push_back(lane);
        self.signs.fetch_add(1, Ordering::Release);
        self.came.notify_one();
    }

    fn take(&self, state: &mut State) -> Option<Arc<dyn Task>> {
        if !self.sequenced {
            return state.tasks.pop_front();
        }
        let lane = state.turns.front()?;
        let task = state.lanes.get_mut(lane)?.pop_front()?;
        state.turns.pop_front();
        Some(task)
    }

    /// The next request, for the thread of the rank, which looks for one for so long before it sleeps; `None` where there are no more.
    pub(super) fn pop(&self, spin: Duration) -> Option<Arc<dyn Task>> {
        let mut state = self.state();
        loop {
            if let Some(task) = self.take(&mut state) {
                state.held -= 1;
                self.has_room(state);
                return Some(task);
            }
            if state.closed.is_some() && (!state.draining || state.held == 0) {
                return None;
            }
            if !spin.is_zero() {
                let (signs, since) = (self.signs.load(Ordering::Acquire), Instant::now());
                drop(state);
                while self.signs.load(Ordering::Acquire) == signs && since.elapsed() < spin {
                    std::hint::spin_loop();
                }
                let changed = self.signs.load(Ordering::Acquire) != signs;
                state = self.state();
                if changed {
                    continue;
                }
                if let Some(task) = self.take(&mut state) {
                    state.held -= 1;
                    self.has_room(state);
                    return Some(task);
                }
                if state.closed.is_some() {
                    continue;
                }
            }
            state = self.came.wait_timeout(state, SLEEP).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes no more requests; those that wait are still done where it `drains`, and given back else.
    pub(super) fn close(&self, reason: Reason, error: &Error, drains: bool) -> Vec<Arc<dyn Task>> {
        let mut state = self.state();
        state.closed.get_or_insert_with(|| (reason, error.clone()));
        state.draining = drains;
        let mut left = Vec::new();
        if !drains {
            left.extend(state.tasks.drain(..));
            for lane in state.lanes.values_mut() {
                left.extend(lane.drain(..));
            }
            state.turns.clear();
            state.held -= left.len();
        }
        self.signs.fetch_add(1, Ordering::Release);
        self.has_room(state);
        self.came.notify_all();
        left
    }

    /// Those that wait, and whose deadline has passed. They keep their turn.
    pub(super) fn late(&self) -> Vec<Arc<dyn Task>> {
        let state = self.state();
        let all = state.tasks.iter().chain(state.lanes.values().flatten());
        all.filter(|task| task.meta().deadline.expired()).cloned().collect()
    }

    /// The lanes of those that wait, each as often as it has some.
    pub(super) fn waiting(&self) -> Vec<Option<Lane>> {
        let state = self.state();
        state.tasks.iter().chain(state.lanes.values().flatten()).map(|task| task.meta().lane.clone()).collect()
    }

    /// How many requests wait.
    pub(super) fn len(&self) -> usize {
        self.state().held
    }
}

/// How long the thread of a rank sleeps before it looks again, whatever comes.
const SLEEP: Duration = Duration::from_millis(500);

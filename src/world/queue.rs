//! The queue of requests of one rank.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::completion::Poller;
use super::failure_reason::{Reason, SUBMIT};
use super::guarded::dropped;
use super::lane::{Lane, NO_LANE, key_of};
use super::task::{Meta, Task};
use crate::callbacks;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::hint::Apart;
use crate::lock::{Condvar, Mutex, MutexGuard, is_forked};

/// The queue of requests of one rank, with a bound.
#[derive(Debug)]
pub(super) struct Queue {
    state: Apart<Mutex<State>>,
    /// Wakes the thread of the rank when a request has come.
    came: Condvar,
    /// Wakes the threads that wait for room.
    left: Condvar,
    /// Changes whenever a request comes. The thread of the rank watches it while it spins.
    signs: Apart<AtomicUsize>,
    bound: usize,
}

/// What every request touches. It fits into two cache lines, which move from the submitting thread to the thread of the rank.
#[derive(Debug, Default)]
struct State {
    /// The requests in the order of arrival; empty if there is a sequencer.
    tasks: VecDeque<Arc<dyn Task>>,
    /// The lanes, if there is a sequencer.
    lanes: Option<Box<Lanes>>,
    /// How many requests there are, those with a reserved place included.
    held: usize,
    closed: Option<Box<(Reason, Error)>>,
    draining: bool,
    /// Whether the thread of the rank sleeps. If it is awake, a submitting thread needs no system call.
    asleep: bool,
    /// How many threads wait for room.
    waiting: usize,
    /// Futures that wait for room, by their numbers.
    rooms: Vec<(u64, Waker)>,
    /// The number of the last of these futures.
    numbered: u64,
    /// The error of requests that were refused as too late before any rank took them.
    missed: Option<Box<Error>>,
}

const _: () = assert!(size_of::<Mutex<State>>() <= 128);

/// The lanes of a sequencer.
#[derive(Debug, Default)]
struct Lanes {
    waiting: HashMap<Arc<str>, VecDeque<Arc<dyn Task>>>,
    /// The turns, in the order of the sequencer.
    turns: VecDeque<Arc<str>>,
    /// The ranks that have left. This queue has received all turns that they have given.
    left: Vec<usize>,
}

impl Lanes {
    /// Returns true if it is the turn of this lane, and it has no request here.
    fn wait_for(&self, name: &str) -> bool {
        self.turns.front().is_some_and(|turn| &**turn == name) && self.waiting.get(name).is_none_or(VecDeque::is_empty)
    }

    /// Returns how many turns of a lane are here.
    fn turns_of(&self, key: &str) -> usize {
        self.turns.iter().filter(|turn| &***turn == key).count()
    }

    /// Returns why one more request of this lane will get no turn, if that is known.
    fn check_turn(&self, lane: Option<&Lane>) -> Result<(), (Reason, Error)> {
        let first = lane.map_or(0, Lane::first);
        if !self.left.contains(&first) {
            return Ok(());
        }
        let key = lane.map_or(NO_LANE, |lane| &*lane.key);
        let waiting = self.waiting.get(key).map_or(0, VecDeque::len);
        if waiting < self.turns_of(key) { Ok(()) } else { Err(no_turn(SUBMIT, first)) }
    }

    /// Takes out the requests that wait for a turn of `rank`, which has left without giving it.
    fn take_without_turn(&mut self, rank: usize) -> Vec<Arc<dyn Task>> {
        let mut taken = Vec::new();
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|key, tasks| {
            let first = tasks.front().map(|task| task.meta().terms.lane.as_ref().map_or(0, Lane::first));
            if first == Some(rank) {
                taken.extend(tasks.split_off(self.turns_of(key).min(tasks.len())));
            }
            !tasks.is_empty()
        });
        self.waiting = waiting;
        taken
    }

    fn push(&mut self, task: Arc<dyn Task>) {
        self.waiting.entry(key_of(task.meta().terms.lane.as_ref())).or_default().push_back(task);
    }

    /// Returns the next request in turn, if it is here.
    fn pop(&mut self) -> Option<Arc<dyn Task>> {
        let lane = self.turns.front()?;
        let waiting = self.waiting.get_mut(lane)?;
        let task = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(lane);
        }
        self.turns.pop_front();
        Some(task)
    }
}

impl State {
    /// Takes out all requests.
    fn all(&self) -> impl Iterator<Item = &Arc<dyn Task>> {
        self.tasks.iter().chain(self.lanes.iter().flat_map(|lanes| lanes.waiting.values().flatten()))
    }

    fn pop(&mut self) -> Option<Arc<dyn Task>> {
        let task = match &mut self.lanes {
            None => self.tasks.pop_front(),
            Some(lanes) => lanes.pop(),
        };
        self.held -= usize::from(task.is_some());
        task
    }
}

/// The requests of a queue that was closed. They are answered once no lock is held.
#[must_use = "it waits for an answer"]
pub(super) struct Left(Vec<Arc<dyn Task>>);

impl Left {
    /// Answers these requests.
    pub(super) fn refuse(self, reason: Reason, cause: &Error) {
        for task in self.0 {
            let meta = task.meta();
            // A request whose deadline has passed is answered with a timeout, also if that is what closed the queue.
            if meta.deadline.expired() && reason == Reason::Down {
                task.refuse(Reason::Late, meta.late("it has not begun"));
            } else {
                task.refuse(reason, cause.later(meta.operation));
            }
            dropped(task);
        }
    }
}

/// The error of a request that gets no turn, because `rank`, which gives the turns of its lane, has left.
fn no_turn(operation: &'static str, rank: usize) -> (Reason, Error) {
    let how = "has closed its world in good order, and gives this lane no more turns".to_owned();
    (Reason::Closed, Error::Departed { operation, rank, how })
}

/// A reserved place in a queue, for one request.
#[derive(Debug)]
pub(super) struct Place {
    queue: Option<Arc<Queue>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        // The threads of the queue do not exist in a forked child.
        if let Some(queue) = self.queue.take().filter(|_| !is_forked()) {
            let mut state = queue.state();
            state.held -= 1;
            queue.has_room(state);
        }
    }
}

impl Queue {
    pub(super) fn new(bound: usize, sequenced: bool) -> Arc<Self> {
        let state = State { lanes: sequenced.then(Box::default), ..State::default() };
        Arc::new(Self {
            state: Apart(Mutex::new(state)),
            came: Condvar::new(),
            left: Condvar::new(),
            signs: Apart::default(),
            bound,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.0.lock()
    }

    /// Wakes the thread of the rank.
    fn has_come(&self, state: MutexGuard<'_, State>) {
        let asleep = state.asleep;
        drop(state);
        self.signs.0.fetch_add(1, Ordering::Release);
        if asleep {
            self.came.notify_one();
        }
    }

    /// Wakes the threads and futures that wait for room.
    fn has_room(&self, mut state: MutexGuard<'_, State>) {
        let (rooms, waiting) = (std::mem::take(&mut state.rooms), state.waiting);
        drop(state);
        if waiting > 0 {
            self.left.notify_all();
        }
        rooms.into_iter().for_each(|(_, waker)| callbacks::wake(waker));
    }

    /// Has those that wait for room ask again.
    pub(super) fn ask_again(&self) {
        self.has_room(self.state());
    }

    /// Returns true if there is room for a request of this lane. If the rank waits for this very request, there always is.
    fn has_place(&self, state: &State, lane: Option<&Lane>) -> Result<bool, (Reason, Error)> {
        if let Some(lanes) = &state.lanes {
            lanes.check_turn(lane)?;
        }
        match &state.closed {
            Some(closed) => Err((**closed).clone()),
            None if state.held < self.bound => Ok(true),
            None => {
                Ok(state.lanes.as_ref().is_some_and(|lanes| lanes.wait_for(lane.map_or(NO_LANE, |lane| &*lane.key))))
            }
        }
    }

    /// Reserves a place for a request of this lane, if there is one before the deadline.
    fn hold_place<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        lane: Option<&Lane>,
        deadline: Option<&Deadline>,
    ) -> Result<MutexGuard<'a, State>, (Reason, Error)> {
        while !self.has_place(&state, lane)? {
            let Some(deadline) = deadline.filter(|deadline| !deadline.expired()) else { return Err(self.full()) };
            state.waiting += 1;
            state = self.left.wait_timeout(state, deadline.remaining());
            state.waiting -= 1;
        }
        state.held += 1;
        Ok(state)
    }

    /// Returns a place, if there is one before the deadline.
    pub(super) fn place(
        self: &Arc<Self>,
        lane: Option<&Lane>,
        deadline: Option<&Deadline>,
    ) -> Result<Place, (Reason, Error)> {
        drop(self.hold_place(self.state(), lane, deadline)?);
        Ok(Place { queue: Some(Arc::clone(self)) })
    }

    fn full(&self) -> (Reason, Error) {
        let reason = format!("its queue is full: there is room for {} requests", self.bound);
        (Reason::Full, Error::InvalidUsage { operation: SUBMIT, reason })
    }

    /// Returns a number for a future that waits for room.
    pub(super) fn number(&self) -> u64 {
        let mut state = self.state();
        state.numbered += 1;
        state.numbered
    }

    /// Returns a place for the future of that number, or `None`; then `waker` is woken when it should ask again.
    pub(super) fn poll_place(
        self: &Arc<Self>,
        lane: Option<&Lane>,
        number: u64,
        waker: &Waker,
    ) -> Result<Option<Place>, (Reason, Error)> {
        let own = |room: &&mut (u64, Waker)| room.0 == number;
        // Wakers are user code, so none is cloned or dropped under the lock, which the thread of the rank takes.
        let mut cloned = None;
        loop {
            let mut state = self.state();
            if self.has_place(&state, lane)? {
                state.held += 1;
                return Ok(Some(Place { queue: Some(Arc::clone(self)) }));
            }
            match (state.rooms.iter_mut().find(own), cloned.take()) {
                (Some((_, known)), _) if known.will_wake(waker) => return Ok(None),
                (Some((_, known)), Some(new)) => {
                    let before = std::mem::replace(known, new);
                    drop(state);
                    drop(before);
                    return Ok(None);
                }
                (None, Some(new)) => {
                    state.rooms.push((number, new));
                    return Ok(None);
                }
                (_, None) => {}
            }
            drop(state);
            cloned = Some(waker.clone());
        }
    }

    /// Records that the future of that number waits no more.
    pub(super) fn forget(&self, number: u64) {
        let mut state = self.state();
        let known = state.rooms.iter().position(|room| room.0 == number).map(|at| state.rooms.swap_remove(at));
        drop(state);
        drop(known);
    }

    /// Puts a request into its place, or into another one if its place belongs to an earlier queue. A request without a place waits
    /// for one until its deadline, or fails at once, as its terms say.
    ///
    /// # Errors
    /// Returns why the queue was closed, if it was.
    pub(super) fn push(&self, place: &mut Option<Place>, task: Arc<dyn Task>) -> Result<(), (Reason, Error)> {
        let mut state = self.state();
        if let Some(closed) = &state.closed {
            return Err((**closed).clone());
        }
        if let Some(lanes) = &state.lanes {
            lanes.check_turn(task.meta().terms.lane.as_ref())?;
        }
        // The request owns the place from now on.
        let own = place.as_mut().and_then(|place| place.queue.take_if(|queue| std::ptr::eq(&**queue, self)));
        if own.is_none() {
            let Meta { deadline, terms, .. } = task.meta();
            let waits = place.is_none() && terms.waits;
            state = self.hold_place(state, terms.lane.as_ref(), waits.then_some(deadline))?;
        }
        match &mut state.lanes {
            None => state.tasks.push_back(task),
            Some(lanes) => lanes.push(task),
        }
        self.has_come(state);
        Ok(())
    }

    /// Adds a turn of this lane, as the sequencer says. Afterwards those that wait for room must [ask again](Self::ask_again).
    pub(super) fn turn(&self, lane: Arc<str>) {
        let mut state = self.state();
        if let Some(lanes) = &mut state.lanes {
            lanes.turns.push_back(lane);
        }
        self.has_come(state);
    }

    /// Records that a rank has left, and that this queue has all turns which it has given. Requests that wait for another of its
    /// turns are refused, now and later.
    pub(super) fn leaves(&self, rank: usize) {
        let mut state = self.state();
        let Some(lanes) = &mut state.lanes else { return };
        lanes.left.push(rank);
        let tasks = lanes.take_without_turn(rank);
        state.held -= tasks.len();
        self.signs.0.fetch_add(1, Ordering::Release);
        self.has_room(state);
        self.came.notify_all();
        for task in tasks {
            let (reason, error) = no_turn(task.meta().operation, rank);
            task.refuse(reason, error);
            dropped(task);
        }
    }

    /// Returns the next request to the thread of the rank, or `None` once the queue is closed and empty. Spins for the time `spin`
    /// before it sleeps, and polls the requests on the device meanwhile.
    pub(super) fn pop(&self, spin: Duration, poller: &Poller) -> Option<Arc<dyn Task>> {
        let mut state = self.state();
        loop {
            if let Some(task) = state.pop() {
                self.has_room(state);
                return Some(task);
            }
            if state.closed.is_some() && (!state.draining || state.held == 0) {
                return None;
            }
            if !spin.is_zero() {
                let signs = self.signs.0.load(Ordering::Acquire);
                drop(state);
                let changed = self.spin(signs, spin, poller);
                state = self.state();
                if changed || state.closed.is_some() {
                    continue;
                }
                if let Some(task) = state.pop() {
                    self.has_room(state);
                    return Some(task);
                }
                poller.leave();
            }
            state.asleep = true;
            state = self.came.wait_timeout(state, SLEEP);
            state.asleep = false;
        }
    }

    /// Spins until a request comes after `signs`. Returns false if none comes in this time.
    fn spin(&self, signs: usize, time: Duration, poller: &Poller) -> bool {
        let since = Instant::now();
        poller.attend();
        while self.signs.0.load(Ordering::Acquire) == signs {
            if since.elapsed() >= time {
                return false;
            }
            poller.glance();
            std::hint::spin_loop();
        }
        true
    }

    /// Closes the queue. Requests that wait are still done if it `drains`, and are returned otherwise.
    pub(super) fn close(&self, reason: Reason, error: &Error, drains: bool) -> Left {
        let mut state = self.state();
        state.closed.get_or_insert_with(|| Box::new((reason, error.clone())));
        state.draining = drains;
        let mut tasks = Vec::new();
        if !drains {
            tasks.extend(state.tasks.drain(..));
            let lanes = state.lanes.as_mut().map(std::mem::take);
            tasks.extend(lanes.into_iter().flat_map(|lanes| lanes.waiting.into_values().flatten()));
            state.held -= tasks.len();
        }
        self.signs.0.fetch_add(1, Ordering::Release);
        self.has_room(state);
        self.came.notify_all();
        Left(tasks)
    }

    /// Returns the requests without an answer whose deadline has passed, also those that were cancelled with another one. They keep
    /// their turn.
    pub(super) fn late(&self) -> Vec<Arc<dyn Task>> {
        let state = self.state();
        let mut late: Vec<_> = state.all().filter(|task| task.meta().deadline.expired()).cloned().collect();
        drop(state);
        late.retain(|task| !task.is_answered());
        late
    }

    /// Records that a waiting request was refused as too late before a rank took requests from this queue: other processes may
    /// still do theirs.
    pub(super) fn miss(&self, error: Error) {
        self.state().missed.get_or_insert_with(|| Box::new(error));
    }

    /// Returns the error of such a request, if there was one.
    pub(super) fn missed(&self) -> Option<Error> {
        self.state().missed.as_deref().cloned()
    }

    /// Returns the lanes of the requests that wait, one entry for each request.
    pub(super) fn waiting(&self) -> Vec<Option<Lane>> {
        self.state().all().map(|task| task.meta().terms.lane.clone()).collect()
    }

    /// Returns how many requests wait.
    pub(super) fn tasks(&self) -> usize {
        self.state().all().count()
    }

    /// Returns how many requests wait or have a reserved place.
    pub(super) fn len(&self) -> usize {
        self.state().held
    }
}

/// How long the thread of a rank sleeps at most.
const SLEEP: Duration = Duration::from_millis(500);

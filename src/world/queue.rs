//! The requests that wait for a rank.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::completion::Looks;
use super::guarded::dropped;
use super::lane::{Lane, NO_LANE, key_of};
use super::task::{Meta, Task};
use super::why::{Reason, SUBMIT};
use crate::callbacks;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::hint::Apart;
use crate::lock::{Condvar, Mutex, MutexGuard};

/// The requests that wait for a rank, up to a bound.
#[derive(Debug)]
pub(super) struct Queue {
    state: Apart<Mutex<State>>,
    /// Something has come, for the thread of the rank.
    came: Condvar,
    /// There is room, for who waits for it.
    left: Condvar,
    /// Changes whenever something comes: for who spins.
    signs: Apart<AtomicUsize>,
    bound: usize,
}

/// What each request needs fits into two cache lines, which go from who submits to the thread of the rank; the rest stands elsewhere.
#[derive(Debug, Default)]
struct State {
    /// As they came; where there is a sequencer, nothing.
    tasks: VecDeque<Arc<dyn Task>>,
    /// Where there is one.
    lanes: Option<Box<Lanes>>,
    /// How many there are, with those that have a place.
    held: usize,
    closed: Option<Box<(Reason, Error)>>,
    draining: bool,
    /// Whether the thread of the rank sleeps: who finds it awake makes no call of the system.
    asleep: bool,
    /// How many threads wait for room.
    waiting: usize,
    /// Futures that wait for room, by their numbers.
    rooms: Vec<(u64, Waker)>,
    /// The number of the last one.
    numbered: u64,
    /// Of what was refused as too late while no rank took it.
    missed: Option<Box<Error>>,
}

const _: () = assert!(size_of::<Mutex<State>>() <= 128);

/// The lanes of a sequencer.
#[derive(Debug, Default)]
struct Lanes {
    waiting: HashMap<Arc<str>, VecDeque<Arc<dyn Task>>>,
    /// What it says: whose turn it is.
    turns: VecDeque<Arc<str>>,
    /// The ranks that have left. All turns that they have given are here, or were.
    left: Vec<usize>,
}

impl Lanes {
    /// Whether it is the turn of this lane, and nothing of it is here.
    fn wait_for(&self, name: &str) -> bool {
        self.turns.front().is_some_and(|turn| &**turn == name) && self.waiting.get(name).is_none_or(VecDeque::is_empty)
    }

    /// How many turns of a lane are here.
    fn turns_of(&self, key: &str) -> usize {
        self.turns.iter().filter(|turn| &***turn == key).count()
    }

    /// Why one more request of this lane gets no turn, if that is known.
    fn check_turn(&self, lane: Option<&Lane>) -> Result<(), (Reason, Error)> {
        let first = lane.map_or(0, Lane::first);
        if !self.left.contains(&first) {
            return Ok(());
        }
        let key = lane.map_or(NO_LANE, |lane| &*lane.key);
        let waiting = self.waiting.get(key).map_or(0, VecDeque::len);
        if waiting < self.turns_of(key) { Ok(()) } else { Err(no_turn(SUBMIT, first)) }
    }

    /// Takes the requests that wait for a turn that `rank`, which has left, has not given.
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

    /// The next one, where it is here.
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
    /// All that wait.
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

/// What waited in a queue that was closed: it is answered once no lock is held.
#[must_use = "it waits for an answer"]
pub(super) struct Left(Vec<Arc<dyn Task>>);

impl Left {
    /// Answers what waited.
    pub(super) fn refuse(self, reason: Reason, cause: &Error) {
        for task in self.0 {
            let meta = task.meta();
            // What comes too late is told so, whatever it has brought about.
            if meta.deadline.expired() && reason == Reason::Down {
                task.refuse(Reason::Late, meta.late("it has not begun"));
            } else {
                task.refuse(reason, cause.later(meta.operation));
            }
            dropped(task);
        }
    }
}

/// Why a request gets no turn, of a lane whose turns `rank` has given.
fn no_turn(operation: &'static str, rank: usize) -> (Reason, Error) {
    let how = "has shut down its world in good order, and gives this lane no more turns".to_owned();
    (Reason::Closed, Error::Gone { operation, rank, how })
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

    /// Tells the thread of the rank, which alone waits for it.
    fn has_come(&self, state: MutexGuard<'_, State>) {
        let asleep = state.asleep;
        drop(state);
        self.signs.0.fetch_add(1, Ordering::Release);
        if asleep {
            self.came.notify_one();
        }
    }

    /// Tells those who wait for room.
    fn has_room(&self, mut state: MutexGuard<'_, State>) {
        let (rooms, waiting) = (std::mem::take(&mut state.rooms), state.waiting);
        drop(state);
        if waiting > 0 {
            self.left.notify_all();
        }
        rooms.into_iter().for_each(|(_, waker)| callbacks::wake(waker));
    }

    /// Tells those who wait for room to ask again.
    pub(super) fn ask_again(&self) {
        self.has_room(self.state());
    }

    /// Whether there is room for one of this lane. Where the rank waits for it, and for nothing else, it gets in however many of others wait.
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

    /// A place is held for one of this lane, where there is one before the deadline.
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

    /// A place, where there is one before the deadline.
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

    /// A number for a future that waits for room.
    pub(super) fn number(&self) -> u64 {
        let mut state = self.state();
        state.numbered += 1;
        state.numbered
    }

    /// The same for the future of that number: `None` where `waker` is told when to ask again.
    pub(super) fn poll_place(
        self: &Arc<Self>,
        lane: Option<&Lane>,
        number: u64,
        waker: &Waker,
    ) -> Result<Option<Place>, (Reason, Error)> {
        let own = |room: &&mut (u64, Waker)| room.0 == number;
        // Wakers are user code: none is cloned or dropped under the lock, which the thread of the rank takes.
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

    /// The future of that number waits no more.
    pub(super) fn forget(&self, number: u64) {
        let mut state = self.state();
        let known = state.rooms.iter().position(|room| room.0 == number).map(|at| state.rooms.swap_remove(at));
        drop(state);
        drop(known);
    }

    /// Puts a request into its place, or into another one where that is of a queue that there was before; one that has none waits for one until its
    /// deadline, or does not, as its terms say. Where the queue was closed meanwhile, says why it was.
    pub(super) fn push(&self, place: &mut Option<Place>, task: Arc<dyn Task>) -> Result<(), (Reason, Error)> {
        let mut state = self.state();
        if let Some(closed) = &state.closed {
            return Err((**closed).clone());
        }
        if let Some(lanes) = &state.lanes {
            lanes.check_turn(task.meta().terms.lane.as_ref())?;
        }
        // Its place is that of the request from now on.
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

    /// The sequencer says that the next one is of this lane. Who waits for room is to [ask again](Self::ask_again).
    pub(super) fn turn(&self, lane: Arc<str>) {
        let mut state = self.state();
        if let Some(lanes) = &mut state.lanes {
            lanes.turns.push_back(lane);
        }
        self.has_come(state);
    }

    /// A rank has left, and all turns that it has given were given to this queue: requests that wait for another one of
    /// its turns, or will, are refused.
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

    /// The next request, for the thread of the rank, which looks for one for so long before it sleeps, and meanwhile for what is done; `None` where
    /// there are no more.
    pub(super) fn pop(&self, spin: Duration, looks: &Looks) -> Option<Arc<dyn Task>> {
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
                let changed = self.spin(signs, spin, looks);
                state = self.state();
                if changed || state.closed.is_some() {
                    continue;
                }
                if let Some(task) = state.pop() {
                    self.has_room(state);
                    return Some(task);
                }
                looks.leave();
            }
            state.asleep = true;
            state = self.came.wait_timeout(state, SLEEP);
            state.asleep = false;
        }
    }

    /// Whether something has come within that time, after `signs`.
    fn spin(&self, signs: usize, time: Duration, looks: &Looks) -> bool {
        let since = Instant::now();
        looks.attend();
        while self.signs.0.load(Ordering::Acquire) == signs {
            if since.elapsed() >= time {
                return false;
            }
            looks.glance();
            std::hint::spin_loop();
        }
        true
    }

    /// Takes no more requests; those that wait are still done where it `drains`, and given back else.
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

    /// Those that have no answer, and whose deadline has passed: of what was cancelled with another one as well. They keep their turn.
    pub(super) fn late(&self) -> Vec<Arc<dyn Task>> {
        let state = self.state();
        let mut late: Vec<_> = state.all().filter(|task| task.meta().deadline.expired()).cloned().collect();
        drop(state);
        late.retain(|task| !task.is_answered());
        late
    }

    /// Something that waits is refused as too late, and no rank has begun with this queue: others may still have theirs.
    pub(super) fn miss(&self, error: Error) {
        self.state().missed.get_or_insert_with(|| Box::new(error));
    }

    /// Whether something was.
    pub(super) fn missed(&self) -> Option<Error> {
        self.state().missed.as_deref().cloned()
    }

    /// The lanes of those that wait, each as often as it has some.
    pub(super) fn waiting(&self) -> Vec<Option<Lane>> {
        self.state().all().map(|task| task.meta().terms.lane.clone()).collect()
    }

    /// How many requests wait.
    pub(super) fn tasks(&self) -> usize {
        self.state().all().count()
    }

    /// The same, with room that somebody has for one.
    pub(super) fn len(&self) -> usize {
        self.state().held
    }
}

/// How long the thread of a rank sleeps before it looks again, whatever comes.
const SLEEP: Duration = Duration::from_millis(500);

//! The state of a world: whether it is up, why it is down, what it has done and what it can do.

pub use super::capabilities::Capabilities;
pub use super::counters::Metrics;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::forked;
use super::park::wait_for;
use super::traced;
use crate::callbacks;
use crate::cuda::refuse;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::lock::{Condvar, Mutex, MutexGuard};
use crate::name::Name;

/// Whether a world takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// It does.
    Up,
    /// It has failed.
    Down,
    /// It was closed or aborted.
    Closed,
}

/// How a world is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Health {
    /// The number of its generation, from 1: each rebuild makes a new one.
    pub generation: u64,
    /// Whether it takes requests.
    pub phase: Phase,
    /// How many ranks that generation has, or had.
    pub size: usize,
    /// Why it is down.
    pub cause: Option<Error>,
    /// Why the last attempt to rebuild it has failed.
    pub attempt: Option<Error>,
}

impl Health {
    fn lost_by_a_fork() -> Self {
        Self { generation: 0, phase: Phase::Down, size: 0, cause: refuse("World", "CUDA").err(), attempt: None }
    }
}

#[derive(Debug)]
struct State {
    health: Health,
    /// How often it has changed.
    changes: u64,
    /// Whether all that the failed generation had is answered.
    ended: bool,
    /// Who waits for a change, by the number of its watch.
    wakers: HashMap<u64, Waker>,
    watches: u64,
}

#[derive(Debug)]
pub(super) struct HealthState {
    /// The name of the world.
    name: Name,
    state: Mutex<State>,
    changed: Condvar,
}

impl HealthState {
    pub(super) fn new(name: Name) -> Self {
        let health = Health { generation: 0, phase: Phase::Down, size: 0, cause: None, attempt: None };
        let state = State { health, changes: 0, ended: true, wakers: HashMap::new(), watches: 0 };
        Self { name, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// It has changed.
    fn tell(&self, mut state: MutexGuard<'_, State>) {
        state.changes += 1;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.changed.notify_all();
        wakers.into_values().for_each(callbacks::wake);
    }

    /// In a forked child that cannot know it, no generation, which is down.
    pub(super) fn health(&self) -> Health {
        forked::lock(&self.state).map_or_else(Health::lost_by_a_fork, |state| state.health.clone())
    }

    /// The generation and the phase, without what is costly.
    pub(super) fn now(&self) -> (u64, Phase) {
        let now = forked::lock(&self.state).map(|state| (state.health.generation, state.health.phase));
        now.unwrap_or((0, Phase::Down))
    }

    /// A generation begins, unless the world was closed; whether it does.
    pub(super) fn up(&self, generation: u64, size: usize) -> bool {
        let mut state = self.state();
        if state.health.phase == Phase::Closed {
            return false;
        }
        state.health = Health { generation, phase: Phase::Up, size, cause: None, attempt: None };
        state.ended = false;
        self.tell(state);
        true
    }

    /// The generation has failed. Whether nobody has said so before.
    pub(super) fn down(&self, generation: u64, cause: &Error) -> bool {
        let mut state = self.state();
        if (state.health.generation, state.health.phase) != (generation, Phase::Up) {
            return false;
        }
        state.health.phase = Phase::Down;
        state.health.cause = Some(cause.clone());
        self.tell(state);
        traced::down(&self.name, generation, cause);
        true
    }

    /// All that the failed generation had is answered.
    pub(super) fn ended(&self) {
        let mut state = self.state();
        state.ended = true;
        self.tell(state);
    }

    pub(super) fn attempted(&self, error: &Error, attempt: u32) {
        let mut state = self.state();
        state.health.attempt = Some(error.clone());
        let generation = state.health.generation;
        self.tell(state);
        traced::not_rebuilt(&self.name, generation, attempt, error);
    }

    /// It takes no more requests. Whether nobody has said so before.
    pub(super) fn closed(&self) -> bool {
        let mut state = self.state();
        if state.health.phase == Phase::Closed {
            return false;
        }
        state.health.phase = Phase::Closed;
        let generation = state.health.generation;
        self.tell(state);
        traced::closed(&self.name, generation);
        true
    }

    /// Waits until the failed generation has ended, or the world was closed; whether it has.
    pub(super) fn wait_ended(&self, deadline: &Deadline) -> bool {
        let mut state = self.state();
        while !(state.ended && state.health.phase == Phase::Down) {
            if deadline.expired() || state.health.phase != Phase::Down {
                return false;
            }
            state = self.changed.wait_timeout(state, deadline.remaining());
        }
        true
    }

    /// Sleeps until something has changed, for so long at most.
    pub(super) fn sleep(&self, seen: &mut u64, most: Duration) {
        let state = self.state();
        let waited = self.changed.wait_timeout_while(state, most, |state| state.changes == *seen);
        *seen = waited.changes;
    }
}

/// Tells when a world changes: each change once, the latest where there were several. Made by [`World::watch`](super::World::watch).
///
/// ```
/// use gpucomm::Device;
/// use gpucomm::world::{World, health::Phase};
/// use std::time::Duration;
///
/// # fn main() -> gpucomm::Result<()> {
/// let world = World::new(&Device::all()?)?;
/// let mut watch = world.watch();
/// world.fail("a test");
/// let health = watch.wait_timeout(Duration::from_secs(10)).expect("a change");
/// assert_eq!((health.generation, health.phase), (1, Phase::Down));
/// // For executors: `watch.changed().await`.
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct HealthWatch {
    health_state: Arc<HealthState>,
    number: u64,
    seen: u64,
}

impl HealthWatch {
    pub(super) fn new(health_state: &Arc<HealthState>) -> Self {
        let (number, seen) = forked::lock(&health_state.state).map_or_else(Default::default, |mut state| {
            state.watches += 1;
            (state.watches, state.changes)
        });
        Self { health_state: Arc::clone(health_state), number, seen }
    }

    /// A future of the next change.
    pub fn changed(&mut self) -> Changed<'_> {
        Changed(self)
    }

    /// Waits for the next change on this thread, no longer than `timeout`.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Health> {
        wait_for(self.changed(), Some(Deadline::after(timeout))).ok()
    }
}

/// What [`HealthWatch::changed`] returns.
#[derive(Debug)]
#[must_use = "a future tells nothing before it is awaited"]
pub struct Changed<'a>(&'a mut HealthWatch);

impl Future for Changed<'_> {
    type Output = Health;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Health> {
        let watch = &mut *self.get_mut().0;
        // Wakers are user code: none is cloned or dropped under the lock, which threads take on which others depend.
        let waker = context.waker().clone();
        let Some(mut state) = forked::lock(&watch.health_state.state) else {
            return Poll::Ready(Health::lost_by_a_fork());
        };
        if state.changes != watch.seen {
            watch.seen = state.changes;
            return Poll::Ready(state.health.clone());
        }
        // One for each watch, however often it is asked, and by whom.
        let before = state.wakers.insert(watch.number, waker);
        drop(state);
        // It may be the last that has a future, with a watch of its own.
        drop(before);
        Poll::Pending
    }
}

impl Drop for HealthWatch {
    fn drop(&mut self) {
        let waker = forked::lock(&self.health_state.state).and_then(|mut state| state.wakers.remove(&self.number));
        drop(waker);
    }
}

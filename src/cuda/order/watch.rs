//! One thread that asks how waits stand for which no thread of the user waits.
//!
//! CUDA could call a function of the host when a stream has come to a point, but not when the work before it hangs, or the device is lost.
//! So somebody has to look at the clock, and who looks anyway needs nobody to call.

use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::wait::Ask;
use crate::callbacks;
use crate::error::{Error, Result};
use crate::lock::{Condvar, Mutex, MutexGuard};

/// How long the thread sleeps between looks, while the youngest wait is younger than so long, or older than all of these: what comes soon
/// is seen soon.
const PAUSES: [(Duration, Duration); 2] =
    [(Duration::from_millis(2), Duration::from_micros(20)), (Duration::from_millis(50), Duration::from_micros(100))];
const PAUSE: Duration = Duration::from_micros(500);

/// A wait that the thread asks, and who wants to know.
#[derive(Debug)]
pub(crate) struct Watched {
    since: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// Who wants to know; once there is one, the thread looks after the wait.
    waker: Option<Waker>,
}

#[derive(Debug)]
enum Stage {
    GoesOn(Box<dyn Ask>),
    Over(Result<()>),
}

struct Watch {
    /// Those that have come since the last look.
    fresh: Vec<Weak<Watched>>,
    running: bool,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch { fresh: Vec::new(), running: false });
static CHANGED: Condvar = Condvar::new();

fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock()
}

impl Watched {
    pub(crate) fn new(wait: Result<impl Ask + 'static>) -> Arc<Self> {
        let stage = wait.map_or_else(|error| Stage::Over(Err(error)), |wait| Stage::GoesOn(Box::new(wait)));
        Arc::new(Self { since: Instant::now(), state: Mutex::new(State { stage, waker: None }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// What it has come to; before that `waker` is told when it has.
    pub(crate) fn poll(self: &Arc<Self>, waker: &Waker) -> Poll<Result<()>> {
        {
            let mut state = self.state();
            if let Some(result) = state.ask() {
                return Poll::Ready(result.clone());
            }
            if state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                return Poll::Pending;
            }
        }
        // Wakers are user code: none is cloned or dropped under the lock, which the thread takes.
        let own = waker.clone();
        let mut state = self.state();
        if let Some(result) = state.ask() {
            return Poll::Ready(result.clone());
        }
        let before = state.waker.replace(own);
        if before.is_none()
            && let Err(error) = look_after(self)
        {
            state.stage = Stage::Over(Err(error.clone()));
            return Poll::Ready(Err(error));
        }
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Nobody wants to know any more: what it waits for is not asked again.
    pub(crate) fn give_up(&self) {
        let mut state = self.state();
        let given_up = (std::mem::replace(&mut state.stage, Stage::Over(Ok(()))), state.waker.take());
        drop(state);
        // Perhaps the last handle of a stream, and a waker, which the thread must not drop.
        drop(given_up);
    }

    /// Asks how it stands, and tells who wants to know when it is over; whether it is.
    fn look(&self) -> bool {
        let waker = {
            let mut state = self.state();
            if state.ask().is_none() {
                return false;
            }
            state.waker.take()
        };
        // By another thread: other futures must not wait for an executor.
        waker.into_iter().for_each(callbacks::wake);
        true
    }
}

impl State {
    fn ask(&mut self) -> Option<&Result<()>> {
        if let Stage::GoesOn(wait) = &mut self.stage
            && let Some(result) = wait.ask()
        {
            self.stage = Stage::Over(result);
        }
        match &self.stage {
            Stage::GoesOn(_) => None,
            Stage::Over(result) => Some(result),
        }
    }
}

/// Has the thread look after `watched`, and starts it where it does not run.
fn look_after(watched: &Arc<Watched>) -> Result<()> {
    let mut watch = watch();
    if !watch.running {
        let spawned = thread::Builder::new().name("gpucomm-futures".into()).spawn(run);
        spawned.map_err(|error| Error::InvalidUsage {
            operation: "Stream::done",
            reason: format!("a thread cannot be started: {error}"),
        })?;
        watch.running = true;
    }
    watch.fresh.push(Arc::downgrade(watched));
    CHANGED.notify_all();
    Ok(())
}

fn run() {
    let mut waits = Vec::new();
    loop {
        {
            let mut watch = watch();
            while waits.is_empty() && watch.fresh.is_empty() {
                watch = CHANGED.wait(watch);
            }
            waits.append(&mut watch.fresh);
        }
        // Who has dropped one does not want to know any more.
        waits.retain(|wait: &Weak<Watched>| wait.upgrade().is_some_and(|wait| !wait.look()));
        let youngest = waits.iter().filter_map(|wait| Some(wait.upgrade()?.since.elapsed())).min();
        if let Some(age) = youngest {
            let pause = PAUSES.iter().find(|(younger, _)| age < *younger).map_or(PAUSE, |(_, pause)| *pause);
            let watch = watch();
            // One that comes now is asked at once.
            drop(CHANGED.wait_timeout_while(watch, pause, |watch| watch.fresh.is_empty()));
        }
    }
}

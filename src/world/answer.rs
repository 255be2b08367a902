//! The answer to a request, as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::at::At;
use super::counters::count;
use super::guarded::{caught, dropped, guarded};
use super::park::wait_for;
use super::request::Request;
use super::stage::{Held, Outcome, Stage, State};
use super::task::{Begun, Meta, Task};
use super::terms::Terms;
use super::told;
use super::why::{Failed, Reason};
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// A request, and what has become of it.
pub(super) struct Shared<R: Request> {
    meta: Meta,
    state: Mutex<State<R>>,
}

impl<R: Request> fmt::Debug for Shared<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = self.state().stage.name();
        write!(f, "{} of rank {}: {stage}", self.meta.operation, self.meta.terms.rank)
    }
}

impl<R: Request> Shared<R> {
    pub(super) fn new(meta: Meta, request: R) -> Arc<Self> {
        meta.terms.counters.submitted.count(meta.terms.rank);
        Arc::new(Self { meta, state: Mutex::new(State { stage: Stage::Queued(request), waker: None, wanted: true }) })
    }

    fn state(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the answer of one that ends. What nobody wants is dropped, outside of the lock.
    fn end(&self, outcome: Outcome<R>) {
        let Terms { counters, rank, .. } = &*self.meta.terms;
        match &outcome {
            Ok(_) => counters.done.count(*rank),
            Err(failed) if failed.reason == Reason::Cancelled => count(&counters.cancelled),
            Err(_) => count(&counters.failed),
        }
        told::answered(&self.meta, outcome.as_ref().err().map(|failed| &failed.error));
        let mut state = self.state();
        let kept = if state.wanted {
            state.stage = Stage::Over(Box::new(outcome));
            None
        } else {
            state.stage = Stage::Told;
            Some(outcome)
        };
        let waker = state.waker.take();
        drop(state);
        // Code of users and of executors: what it does must not end the thread of a rank.
        dropped(kept);
        guarded(|| waker.map(Waker::wake));
    }

    /// Ends it with its buffers.
    fn give_back(&self, request: R, reason: Reason, error: Error) {
        let back = guarded(|| request.into_back());
        self.end(Err(Failed::new(reason, error, back)));
    }

    fn cancel(&self, wanted: bool) -> bool {
        let mut state = self.state();
        state.wanted &= wanted;
        if matches!(state.stage, Stage::Queued(_)) && self.meta.ticket.cancel() {
            self.cancelled(state);
            return true;
        }
        // The thread of its rank may have seen first that others of its ticket were cancelled.
        match &state.stage {
            Stage::Over(outcome) if wanted => {
                return matches!(&**outcome, Err(failed) if failed.reason == Reason::Cancelled);
            }
            Stage::Ending { cancelled } => return *cancelled,
            _ => {}
        }
        if !wanted && let Stage::Over(outcome) = &mut state.stage {
            let outcome = std::mem::replace(outcome, Box::new(Err(told_already(self.meta.operation))));
            state.stage = Stage::Told;
            drop(state);
            drop(outcome);
        }
        false
    }

    /// One that waits has been cancelled.
    fn cancelled(&self, mut state: MutexGuard<'_, State<R>>) {
        match std::mem::replace(&mut state.stage, Stage::Ending { cancelled: true }) {
            Stage::Queued(request) => {
                drop(state);
                let operation = self.meta.operation;
                self.give_back(request, Reason::Cancelled, Error::Cancelled { operation });
            }
            other => state.stage = other,
        }
    }

    /// Ends it where it `is` so far: what it has then.
    fn ending(&self, is: impl FnOnce(&Stage<R>) -> bool) -> Option<Held<R>> {
        let mut state = self.state();
        if !is(&state.stage) {
            return None;
        }
        match std::mem::replace(&mut state.stage, Stage::Ending { cancelled: false }) {
            Stage::Queued(request) => {
                // What belongs to it begins on no other rank, where it has not yet.
                self.meta.ticket.cancel();
                Some(Held::All(request))
            }
            Stage::Running(request) => Some(Held::All(request)),
            Stage::Begun => Some(Held::Elsewhere),
            over => {
                state.stage = over;
                None
            }
        }
    }

    fn panicked(&self, said: String) -> Error {
        Error::InvalidUsage { operation: self.meta.operation, reason: said }
    }
}

impl<R: Request> Task for Shared<R> {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn enqueue(&self, at: &At<'_>) -> Begun {
        let mut request = {
            let mut state = self.state();
            if !matches!(state.stage, Stage::Queued(_)) {
                return Begun::Not;
            }
            if !self.meta.ticket.begin() {
                self.cancelled(state);
                return Begun::Not;
            }
            match std::mem::replace(&mut state.stage, Stage::Begun) {
                Stage::Queued(request) => request,
                other => {
                    state.stage = other;
                    return Begun::Not;
                }
            }
        };
        let enqueued = caught(|| request.enqueue(at)).unwrap_or_else(|said| Err(self.panicked(said)));
        let mut state = self.state();
        if !matches!(state.stage, Stage::Begun) {
            drop(state);
            // It was answered meanwhile, without its buffers.
            dropped(request);
            return Begun::Not;
        }
        match enqueued {
            Ok(()) => {
                self.meta.terms.counters.enqueued.count(self.meta.terms.rank);
                state.stage = Stage::Running(request);
                drop(state);
                told::enqueued(&self.meta);
                Begun::Enqueued
            }
            Err(error) => {
                let reason = match &error {
                    Error::Timeout { .. } => Reason::Late,
                    Error::Aborted { .. } if self.meta.deadline.expired() => Reason::Late,
                    _ => Reason::Failed,
                };
                state.stage = Stage::Ending { cancelled: false };
                drop(state);
                self.give_back(request, reason, error.clone());
                Begun::Failed(error)
            }
        }
    }

    fn finish(&self, result: Result<()>) {
        let Some(Held::All(request)) = self.ending(|stage| matches!(stage, Stage::Running(_))) else { return };
        let outcome = match (result, caught(|| request.into_back())) {
            (Ok(()), Ok(back)) => Ok(back),
            (Ok(()), Err(said)) => Err(Failed::new(Reason::Failed, self.panicked(said), None)),
            (Err(error), back) => {
                let late = matches!(error, Error::Timeout { .. });
                let reason = if late { Reason::Late } else { Reason::Failed };
                Err(Failed::new(reason, error, back.ok()))
            }
        };
        self.end(outcome);
    }

    fn refuse(&self, reason: Reason, error: Error) {
        match self.ending(|stage| matches!(stage, Stage::Queued(_) | Stage::Begun | Stage::Running(_))) {
            Some(Held::All(request)) => self.give_back(request, reason, error),
            Some(Held::Elsewhere) => self.end(Err(Failed::new(reason, error, None))),
            None => {}
        }
    }

    fn expire(&self, error: Error) {
        if let Some(Held::All(request)) = self.ending(|stage| matches!(stage, Stage::Queued(_))) {
            self.give_back(request, Reason::Late, error);
        }
    }

    fn waits(&self) -> bool {
        matches!(self.state().stage, Stage::Queued(_)) && !self.meta.ticket.is_cancelled()
    }

    fn is_answered(&self) -> bool {
        matches!(self.state().stage, Stage::Over(_) | Stage::Told)
    }
}

fn told_already<B>(operation: &'static str) -> Failed<B> {
    let reason = "its answer was given already".to_owned();
    Failed::new(Reason::Failed, Error::InvalidUsage { operation, reason }, None)
}

/// The answer to a request: a future, for any executor, that can be waited for without one.
///
/// Dropping it cancels the request where it has not begun. Where it has, it goes on, and its buffers are dropped when the device is done with
/// them. A collective that is cancelled on one rank is missed by the others, as if this rank did not come: cancel those of all ranks, as
/// [`Wide`](super::Wide) does. Where others are in other processes, that is what their [safety](super::World::from_launch) needs, unless they are
/// checked. In a [lane](super::Lane) one that is cancelled keeps its place in the queue until its turn comes.
///
/// ```
/// use gpucomm::world::{Op, World};
/// use gpucomm::{Device, DeviceBuffer, InPlace, Stream};
/// # use std::task::{Context, Poll, Waker};
///
/// async fn sum(world: &World, x: DeviceBuffer<f32>) -> gpucomm::Result<DeviceBuffer<f32>> {
///     Ok(world.rank(0)?.all_reduce(InPlace(x), Op::Sum).await?)
/// }
///
/// # fn main() -> gpucomm::Result<()> {
/// let world = World::new(&Device::all()?[..1])?;
/// let stream = Stream::new(world.devices()[0])?;
/// let x = DeviceBuffer::from_slice(&stream, &[1f32; 100])?;
/// # let mut future = std::pin::pin!(sum(&world, x));
/// # let x = loop {
/// #     if let Poll::Ready(x) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
/// #         break x?;
/// #     }
/// # };
/// // Without an executor:
/// let x = world.rank(0)?.all_reduce(InPlace(x), Op::Sum).wait()?;
/// assert_eq!(x.to_vec(&stream)?, [1.0; 100]);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropped, the request is cancelled"]
pub struct Answer<R: Request> {
    shared: Arc<Shared<R>>,
}

impl<R: Request> fmt::Debug for Answer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Answer").field(&self.shared).finish()
    }
}

impl<R: Request> Answer<R> {
    pub(super) fn of(shared: &Arc<Shared<R>>) -> Self {
        Self { shared: Arc::clone(shared) }
    }

    /// Whether there is one; who asks is told when there is.
    pub(super) fn poll_ready(&mut self, context: &mut Context<'_>) -> bool {
        let mut state = self.shared.state();
        if matches!(state.stage, Stage::Over(_) | Stage::Told) {
            return true;
        }
        let before = match &mut state.waker {
            Some(waker) if waker.will_wake(context.waker()) => None,
            waker => waker.replace(context.waker().clone()),
        };
        drop(state);
        // It may be the last that has a future: that is dropped outside of the lock.
        drop(before);
        false
    }

    /// It, which there is.
    pub(super) fn take(&mut self) -> Outcome<R> {
        let mut state = self.shared.state();
        match std::mem::replace(&mut state.stage, Stage::Told) {
            Stage::Over(outcome) => *outcome,
            other => {
                state.stage = other;
                Err(told_already(self.shared.meta.operation))
            }
        }
    }

    /// Whether there is one.
    pub fn is_ready(&self) -> bool {
        matches!(self.shared.state().stage, Stage::Over(_))
    }

    /// Cancels the request, unless it has begun; whether it was cancelled. Its answer has the buffers then.
    ///
    /// ```
    /// # use gpucomm::world::{Op, Reason, World};
    /// # use gpucomm::{Device, DeviceBuffer, InPlace, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let world = World::new(&Device::all()?[..1])?;
    /// # let stream = Stream::new(world.devices()[0])?;
    /// # let x = DeviceBuffer::from_slice(&stream, &[1f32; 100])?;
    /// let answer = world.rank(0)?.all_reduce(InPlace(x), Op::Sum);
    /// let cancelled = answer.cancel();
    /// match answer.wait() {
    ///     Ok(_) => assert!(!cancelled, "it was too late for that"),
    ///     Err(failed) => assert_eq!((cancelled, failed.reason, failed.buffers.is_some()), (true, Reason::Cancelled, true)),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel(&self) -> bool {
        self.shared.cancel(true)
    }

    /// Waits for it on this thread: until the deadline of the request, at which there is an answer in any case, but for a few seconds that
    /// the end of a communicator may take.
    ///
    /// # Errors
    /// Why there is no result, with the buffers.
    pub fn wait(self) -> Outcome<R> {
        wait_for(self, None).unwrap_or_else(|answer| Err(told_already(answer.shared.meta.operation)))
    }

    /// Waits for it for so long at most; gives itself back where there is none yet.
    ///
    /// ```
    /// # use gpucomm::world::{Recv, World};
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let world = World::new(&Device::all()?[..2])?;
    /// # let stream = Stream::new(world.devices()[1])?;
    /// # let x = DeviceBuffer::<f32>::zeroed(&stream, 8)?;
    /// let answer = world.rank(1)?.recv(x, 0);
    /// // Nobody sends anything.
    /// let answer = answer.wait_for(Duration::from_millis(10)).expect_err("no answer yet");
    /// # drop(answer);
    /// # world.shutdown(gpucomm::world::Shutdown::Abort, Duration::from_secs(10)).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Itself.
    pub fn wait_for(self, timeout: Duration) -> Result<Outcome<R>, Self> {
        wait_for(self, Some(Deadline::after(timeout)))
    }
}

impl<R: Request> Future for Answer<R> {
    type Output = Outcome<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome<R>> {
        if self.poll_ready(context) { Poll::Ready(self.take()) } else { Poll::Pending }
    }
}

impl<R: Request> Drop for Answer<R> {
    fn drop(&mut self) {
        self.shared.cancel(false);
    }
}

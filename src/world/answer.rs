//! The answer to a request, as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::at::At;
use super::counters::count;
use super::failure_reason::{Failed, Reason};
use super::forked;
use super::guarded::caught;
use super::park::wait_for;
use super::request::Request;
use super::stage::{Ended, Outcome, Stage, State};
use super::task::{Begun, Meta, Task, Ticket};
use super::terms::Terms;
use super::traced;
use crate::callbacks;
use crate::cuda::refuse_in_child;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::lock::{Mutex, MutexGuard};

/// A request, and what has become of it.
pub(super) struct Shared<R: Request> {
    meta: Meta,
    state: Mutex<State<R>>,
}

impl<R: Request> fmt::Debug for Shared<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = forked::lock(&self.state).map_or("lost by a fork", |state| state.stage.name());
        write!(f, "{} of rank {}: {stage}", self.meta.operation, self.meta.terms.rank)
    }
}

impl<R: Request> Shared<R> {
    pub(super) fn new(meta: Meta, request: R) -> Arc<Self> {
        meta.terms.counters.submitted.count(meta.terms.rank);
        Arc::new(Self { meta, state: Mutex::new(State { stage: Stage::Queued(request), waker: None, wanted: true }) })
    }

    fn state(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock()
    }

    /// Ends it, and runs no user code: the request goes to the thread that takes the answer, and comes back from here if nobody wants that.
    #[must_use = "nobody wants it"]
    fn end(&self, request: Option<R>, failure: Option<(Reason, Error)>) -> Option<R> {
        let Terms { counters, rank, .. } = &*self.meta.terms;
        match &failure {
            None => counters.done.count(*rank),
            Some((Reason::Cancelled, _)) => count(&counters.cancelled),
            Some(_) => count(&counters.failed),
        }
        traced::answered(&self.meta, failure.as_ref().map(|(_, error)| error));
        let ended = Ended { request, failure: failure.map(Box::new) };
        let mut state = self.state();
        let unwanted = if state.wanted {
            state.stage = Stage::Over(ended);
            None
        } else {
            state.stage = Stage::Told;
            ended.request
        };
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(callbacks::wake);
        unwanted
    }

    /// The same on a thread on which others depend, or may.
    fn end_here(&self, request: Option<R>, failure: Option<(Reason, Error)>) {
        if let Some(request) = self.end(request, failure) {
            self.meta.terms.counters.discard(request);
        }
    }

    /// Cancels it unless it has begun; whether it was cancelled.
    fn cancel(&self) -> bool {
        let Some(state) = forked::lock(&self.state) else { return false };
        match &state.stage {
            Stage::Queued(_) if self.meta.ticket.cancel() => {
                // This is the thread of the user who has the answer.
                drop(self.cancelled(state));
                self.meta.ticket.refusal().is_none()
            }
            // The thread of its rank may have seen first that others of its ticket were cancelled.
            Stage::Over(Ended { failure: Some(failure), .. }) => failure.0 == Reason::Cancelled,
            Stage::Ending { cancelled } => *cancelled,
            _ => false,
        }
    }

    /// The [`Answer`] was dropped.
    fn leave(&self) {
        let Some(mut state) = forked::lock(&self.state) else { return };
        state.wanted = false;
        let over = match &mut state.stage {
            Stage::Over(ended) => ended.request.take(),
            _ => None,
        };
        let waker = state.waker.take();
        drop(state);
        drop((over, waker));
    }

    /// The ticket of a request that waits says that it does not begin. Returns the request if nobody wants the answer.
    fn cancelled(&self, mut state: MutexGuard<'_, State<R>>) -> Option<R> {
        match std::mem::replace(&mut state.stage, Stage::Ending { cancelled: true }) {
            Stage::Queued(request) => {
                drop(state);
                let cancelled = || (Reason::Cancelled, Error::Cancelled { operation: self.meta.operation });
                self.end(Some(request), Some(self.meta.ticket.refusal().unwrap_or_else(cancelled)))
            }
            other => {
                state.stage = other;
                None
            }
        }
    }

    /// Ends a request whose stage `is` as expected. One that waits calls `refuse` for those that belong to it. Returns the
    /// request, unless the thread of the rank has it.
    fn ending(&self, is: impl FnOnce(&Stage<R>) -> bool, refuse: impl FnOnce(&Ticket)) -> Option<Option<R>> {
        let mut state = self.state();
        if !is(&state.stage) {
            return None;
        }
        match std::mem::replace(&mut state.stage, Stage::Ending { cancelled: false }) {
            Stage::Queued(request) => {
                // What belongs to it begins on no other rank, where it has not yet.
                refuse(&self.meta.ticket);
                Some(Some(request))
            }
            Stage::Running(request) => Some(Some(request)),
            Stage::Begun => Some(None),
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
                if let Some(request) = self.cancelled(state) {
                    self.meta.terms.counters.discard(request);
                }
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
            self.meta.terms.counters.discard(request);
            return Begun::Not;
        }
        match enqueued {
            Ok(()) => {
                self.meta.terms.counters.enqueued.count(self.meta.terms.rank);
                state.stage = Stage::Running(request);
                drop(state);
                traced::enqueued(&self.meta);
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
                self.end_here(Some(request), Some((reason, error.clone())));
                Begun::Failed(error)
            }
        }
    }

    fn finish(&self, result: Result<()>) {
        if let Some(request) = self.ending(|stage| matches!(stage, Stage::Running(_)), |_| ()) {
            let reason = |error: &Error| match error {
                Error::Timeout { .. } => Reason::Late,
                _ => Reason::Failed,
            };
            self.end_here(request, result.err().map(|error| (reason(&error), error)));
        }
    }

    fn refuse(&self, reason: Reason, error: Error) {
        let is = |stage: &Stage<R>| matches!(stage, Stage::Queued(_) | Stage::Begun | Stage::Running(_));
        if let Some(request) = self.ending(is, |ticket| ticket.refuse(reason, &error)) {
            self.end_here(request, Some((reason, error)));
        }
    }

    fn expire(&self, error: Error) {
        let is = |stage: &Stage<R>| matches!(stage, Stage::Queued(_));
        if let Some(request) = self.ending(is, |ticket| ticket.refuse(Reason::Late, &error)) {
            self.end_here(request, Some((Reason::Late, error)));
        }
    }

    fn waits(&self) -> bool {
        matches!(self.state().stage, Stage::Queued(_)) && !self.meta.ticket.is_over()
    }

    fn is_answered(&self) -> bool {
        matches!(self.state().stage, Stage::Over(_) | Stage::Told)
    }
}

/// There is no answer in a forked child: the threads that would give it are not there.
fn lost_by_a_fork<B>(operation: &'static str) -> Failed<B> {
    let error = refuse_in_child(operation, "CUDA").err();
    error.map_or_else(|| told_already(operation), |error| Failed::new(Reason::Failed, error, None))
}

fn told_already<B>(operation: &'static str) -> Failed<B> {
    let reason = "its answer was given already".to_owned();
    Failed::new(Reason::Failed, Error::InvalidUsage { operation, reason }, None)
}

/// The answer to a request: a future, for any executor, that can be waited for without one.
///
/// A drop lets the request go on, and its buffers are dropped when the device is done with them: the other ranks wait for this one's part,
/// and would take its next collective for the one that it left out. [`WideAnswer::cancel`](super::WideAnswer::cancel) cancels the requests of all ranks.
/// In a [lane](super::Lane) one that is cancelled keeps its place in the queue until its turn comes.
///
/// ```
/// use gpucomm::world::World;
/// use gpucomm::{Device, DeviceBuffer, InPlace, ReduceOp, Stream};
/// # use std::task::{Context, Poll, Waker};
///
/// async fn sum(world: &World, x: DeviceBuffer<f32>) -> gpucomm::Result<DeviceBuffer<f32>> {
///     Ok(world.rank(0)?.all_reduce(InPlace(x), ReduceOp::Sum).await?)
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
/// let x = world.rank(0)?.all_reduce(InPlace(x), ReduceOp::Sum).wait()?;
/// assert_eq!(x.to_vec(&stream)?, [1.0; 100]);
/// # Ok(())
/// # }
/// ```
#[must_use = "a drop lets the request go on, and drops its buffers when the device is done with them"]
pub struct Answer<B> {
    shared: Arc<dyn Answered<B>>,
}

/// A request whose answer is awaited.
trait Answered<B>: Send + Sync + fmt::Debug {
    fn operation(&self) -> &'static str;
    fn poll_ready(&self, context: &mut Context<'_>) -> bool;
    fn take(&self) -> Outcome<B>;
    fn is_ready(&self) -> bool;
    fn cancel(&self) -> bool;
    fn leave(&self);
}

impl<R: Request> Answered<R::Back> for Shared<R> {
    fn operation(&self) -> &'static str {
        self.meta.operation
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> bool {
        let is_over = |state: &State<R>| matches!(state.stage, Stage::Over(_) | Stage::Told);
        {
            let Some(state) = forked::lock(&self.state) else { return true };
            if is_over(&state) {
                return true;
            }
            // The threads that would answer are not in a forked child.
            if let Err(error) = refuse_in_child(self.meta.operation, "CUDA") {
                drop(state);
                self.refuse(Reason::Failed, error);
                return true;
            }
            if state.waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
                return false;
            }
        }
        // Wakers are user code: none is cloned or dropped under the lock, which threads take on which others depend.
        let mut waker = Some(context.waker().clone());
        let mut state = self.state();
        let over = is_over(&state);
        if !over {
            std::mem::swap(&mut state.waker, &mut waker);
        }
        drop(state);
        over
    }

    fn take(&self) -> Outcome<R::Back> {
        let operation = self.meta.operation;
        let Some(mut state) = forked::lock(&self.state) else { return Err(lost_by_a_fork(operation)) };
        match std::mem::replace(&mut state.stage, Stage::Told) {
            Stage::Over(ended) => {
                drop(state);
                ended.outcome(operation)
            }
            Stage::Told => Err(told_already(operation)),
            // A thread of the parent of this forked child was about to answer.
            other => {
                state.stage = other;
                Err(lost_by_a_fork(operation))
            }
        }
    }

    fn is_ready(&self) -> bool {
        forked::lock(&self.state).is_none_or(|state| matches!(state.stage, Stage::Over(_)))
    }

    fn cancel(&self) -> bool {
        Shared::cancel(self)
    }

    fn leave(&self) {
        Shared::leave(self);
    }
}

impl<B> fmt::Debug for Answer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Answer").field(&self.shared).finish()
    }
}

impl<B> Answer<B> {
    pub(super) fn of<R: Request<Back = B>>(shared: &Arc<Shared<R>>) -> Self {
        let shared: Arc<Shared<R>> = Arc::clone(shared);
        Self { shared }
    }

    /// Whether there is one; who asks is told when there is.
    pub(super) fn poll_ready(&mut self, context: &mut Context<'_>) -> bool {
        self.shared.poll_ready(context)
    }

    /// Takes the outcome. To be called only when it is ready.
    pub(super) fn take(&mut self) -> Outcome<B> {
        self.shared.take()
    }

    /// Whether there is one.
    pub fn is_ready(&self) -> bool {
        self.shared.is_ready()
    }

    /// Cancels the request, unless it has begun; whether it was cancelled. Its answer has the buffers then.
    ///
    /// The request of one rank goes on where the world has more ranks, as those would miss it, and this returns `false`.
    /// Use [`WideAnswer::cancel`](super::WideAnswer::cancel) there. That is also what this does for an answer out of
    /// [`WideAnswer::into_answers`](super::WideAnswer::into_answers).
    ///
    /// ```
    /// # use gpucomm::world::{Reason, World};
    /// # use gpucomm::{Device, DeviceBuffer, InPlace, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let world = World::new(&Device::all()?[..1])?;
    /// # let stream = Stream::new(world.devices()[0])?;
    /// # let x = DeviceBuffer::from_slice(&stream, &[1f32; 100])?;
    /// let answer = world.rank(0)?.all_reduce(InPlace(x), ReduceOp::Sum);
    /// let cancelled = answer.cancel();
    /// match answer.wait() {
    ///     Ok(_) => assert!(!cancelled, "it was too late for that"),
    ///     Err(failed) => assert_eq!((cancelled, failed.reason, failed.buffers.is_some()), (true, Reason::Cancelled, true)),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel(&self) -> bool {
        self.shared.cancel()
    }

    /// Waits for it on this thread: until the deadline of the request, at which there is an answer in any case, but for a few seconds that
    /// the end of a communicator may take. A request of your own then runs its [`into_back`](Request::into_back) on this thread.
    ///
    /// # Errors
    /// Why there is no result, with the buffers.
    pub fn wait(self) -> Outcome<B> {
        wait_for(self, None).unwrap_or_else(|answer| Err(told_already(answer.shared.operation())))
    }

    /// Waits for it no longer than `timeout`; gives itself back where there is none yet. The time that [`into_back`](Request::into_back) of a request
    /// of your own takes comes on top: this thread runs it.
    ///
    /// ```
    /// # use gpucomm::world::World;
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let world = World::new(&Device::all()?[..2])?;
    /// # let stream = Stream::new(world.devices()[1])?;
    /// # let x = DeviceBuffer::<f32>::zeroed(&stream, 8)?;
    /// let answer = world.rank(1)?.recv(x, 0);
    /// // Nobody sends anything.
    /// let answer = answer.wait_timeout(Duration::from_millis(10)).expect_err("no answer yet");
    /// # drop(answer);
    /// # world.abort("a test").ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Itself.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Outcome<B>, Self> {
        wait_for(self, Some(Deadline::after(timeout)))
    }
}

impl<B> Future for Answer<B> {
    type Output = Outcome<B>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome<B>> {
        if self.poll_ready(context) { Poll::Ready(self.take()) } else { Poll::Pending }
    }
}

impl<B> Drop for Answer<B> {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

//! Room in the queue of a rank, as a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::answer::Answer;
use super::queue::{Place, Queue};
use super::rank::Rank;
use super::request::Request;
use super::task::Ticket;
use crate::error::{Error, Result};

/// What [`Rank::room`] returns: a future of a [`Permit`].
#[derive(Debug)]
#[must_use = "a future does nothing before it is awaited"]
pub struct Room<'a> {
    rank: &'a Rank,
    queue: Option<Arc<Queue>>,
}

/// Room for one request; dropped, it is given back.
#[derive(Debug)]
pub struct Permit<'a> {
    rank: &'a Rank,
    place: Place,
}

/// Room in its queue.
impl Rank {
    /// A future of room for one request in the queue: for tasks that are not to block in [`Rank::submit`].
    ///
    /// ```
    /// use gpucomm::world::{Barrier, Rank, World};
    /// # use gpucomm::Device;
    /// # use std::task::{Context, Poll, Waker};
    ///
    /// async fn wait(rank: &Rank) -> gpucomm::Result<()> {
    ///     Ok(rank.room().await?.submit(Barrier).await?)
    /// }
    /// # fn main() -> gpucomm::Result<()> {
    /// # let world = World::new(&Device::all()?[..1])?;
    /// # let rank = world.rank(0)?;
    /// # let mut future = std::pin::pin!(wait(&rank));
    /// # while let Poll::Pending = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {}
    /// # Ok(())
    /// # }
    /// ```
    pub fn room(&self) -> Room<'_> {
        Room { rank: self, queue: None }
    }
}

impl<'a> Future for Room<'a> {
    type Output = Result<Permit<'a>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let queue = match &self.queue {
            Some(queue) => Arc::clone(queue),
            None => match self.rank.queue() {
                Ok(queue) => Arc::clone(self.queue.insert(queue)),
                Err((_, error)) => return Poll::Ready(Err(error)),
            },
        };
        match queue.poll_place(self.rank.lane_of(), context.waker()) {
            Ok(None) => Poll::Pending,
            Ok(Some(place)) => Poll::Ready(Ok(Permit { rank: self.rank, place })),
            Err((_, error)) => Poll::Ready(Err(error)),
        }
    }
}

impl Permit<'_> {
    /// Submits a request, and does not wait.
    pub fn submit<R: Request>(self, request: R) -> Answer<R> {
        let Self { rank, place } = self;
        rank.hand_in(request, Ticket::default(), false, Some(place))
    }
}

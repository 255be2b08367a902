//! Room in the queue of a rank, as a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::answer::Answer;
use super::failure_reason::SUBMIT;
use super::queue::{Place, Queue};
use super::rank::Rank;
use super::request::Request;
use crate::cuda::refuse_in_child;
use crate::error::{Error, Result};

/// What [`Rank::room`] returns: a future of a [`Permit`].
#[derive(Debug)]
#[must_use = "a future does nothing before it is awaited"]
pub struct Room<'a> {
    rank: &'a Rank,
    /// The queue that was asked, and the number of this future there.
    asked: Option<(Arc<Queue>, u64)>,
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
    /// use gpucomm::world::{Rank, World, requests};
    /// # use gpucomm::Device;
    /// # use std::task::{Context, Poll, Waker};
    ///
    /// async fn wait(rank: &Rank) -> gpucomm::Result<()> {
    ///     Ok(rank.room().await?.submit(requests::barrier()).await?)
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
        Room { rank: self, asked: None }
    }
}

impl<'a> Future for Room<'a> {
    type Output = Result<Permit<'a>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let rank = self.rank;
        // The threads that make room are not in a forked child.
        refuse_in_child(SUBMIT, "CUDA")?;
        let (queue, number) = match &mut self.asked {
            Some(asked) => asked,
            none => match rank.queue() {
                Ok(queue) => {
                    let number = queue.number();
                    none.insert((queue, number))
                }
                Err((_, error)) => return Poll::Ready(Err(error)),
            },
        };
        match queue.poll_place(rank.lane_of(), *number, context.waker()) {
            Ok(None) => Poll::Pending,
            Ok(Some(place)) => Poll::Ready(Ok(Permit { rank, place })),
            Err((_, error)) => Poll::Ready(Err(error)),
        }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let Some((queue, number)) = &self.asked {
            queue.forget(*number);
        }
    }
}

impl Permit<'_> {
    /// Submits a request, and does not wait.
    pub fn submit<R: Request>(self, request: R) -> Answer<R::Back> {
        let Self { rank, place } = self;
        rank.hand_in(request, rank.ticket(), false, Some(place))
    }
}

//! Requests for all ranks at once.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::answer::Answer;
use super::core::Core;
use super::failure_reason::{Failed, Reason, SUBMIT};
use super::guarded::guarded;
use super::park::wait_for;
use super::queue::Place;
use super::rank::Rank;
use super::request::Request;
use super::stage::Outcome;
use super::task::Ticket;
use crate::cuda::refuse_in_child;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// The answers of all ranks of this process, as one: in their order, or the first failure, with the buffers of all.
///
/// A drop lets the requests go on, as that of an [`Answer`] does. [`WideAnswer::cancel`] cancels them on all ranks, or on none.
#[must_use = "a drop lets the requests go on, and drops their buffers when the devices are done with them"]
pub struct WideAnswer<B> {
    answers: Vec<Slot<B>>,
}

enum Slot<B> {
    Waits(Answer<B>),
    Has(Outcome<B>),
    /// Told, or refused before there was a request.
    Given,
}

/// What comes back of all ranks, of which some may be missing.
type Left<B> = Vec<Option<B>>;

impl<B> fmt::Debug for WideAnswer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WideAnswer").field("ranks", &self.answers.len()).finish_non_exhaustive()
    }
}

/// Submits requests through ranks that a caller has chosen, which are of the world of `core`.
pub(super) fn submit_through<R: Request>(core: &Core, ranks: &[Rank], requests: Vec<R>) -> WideAnswer<R::Back> {
    if let Some((at, rank)) = ranks.iter().enumerate().find(|(_, rank)| !rank.is_of(core)) {
        let operation = requests.first().map_or(SUBMIT, Request::operation);
        let (own, other) = (&core.name, rank.world_name());
        let got = match own == other {
            true => format!("rank {} of another world {other} at index {at}", rank.rank()),
            false => format!("rank {} of world {other} at index {at}", rank.rank()),
        };
        let error = Error::argument(operation, "ranks", format_args!("ranks of world {own}, which submits"), got);
        return refused(ranks, requests, Reason::Refused, &error);
    }
    submit(ranks, requests)
}

/// Submits one request to each of these ranks, which are all that this process has, or to none.
pub(super) fn submit<R: Request>(ranks: &[Rank], requests: Vec<R>) -> WideAnswer<R::Back> {
    let submitted = Instant::now();
    let operation = requests.first().map_or(SUBMIT, Request::operation);
    if let Err(error) = refuse_in_child(operation, "CUDA") {
        return refused(ranks, requests, Reason::Refused, &error);
    }
    if ranks.len() != requests.len() || ranks.is_empty() {
        let expected = format!("{} requests, one for each rank of this process", ranks.len());
        let error = Error::argument(operation, "requests", expected, format!("{} requests", requests.len()));
        return refused(ranks, requests, Reason::Refused, &error);
    }
    let mut requests = requests;
    // Nothing is submitted where one of them is wrong.
    let wrong = ranks.iter().zip(&mut requests).find_map(|(rank, request)| rank.check(request).err());
    if let Some(error) = wrong {
        return refused(ranks, requests, Reason::Refused, &error);
    }
    // Reserve places before the lock is taken: a caller that waits for room then holds up no other. All ranks get the requests of all callers in one order.
    let operation = requests[0].operation();
    let place = |rank: &Rank| rank.place(submitted).map_err(|why| rank.why(operation, why));
    let places: Result<Vec<Place>, _> = ranks.iter().map(place).collect();
    let places = match places {
        Ok(places) => places,
        Err((reason, error)) => return refused(ranks, requests, reason, &error),
    };
    let ticket = Ticket::shared(are_all(ranks));
    let shared = |(rank, request): (&Rank, R)| rank.shared(request, ticket.clone(), false, submitted);
    let all: Vec<_> = ranks.iter().zip(requests).map(shared).collect();
    let mut places: Vec<_> = places.into_iter().map(Some).collect();
    let together = ranks[0].together();
    let puts = ranks.iter().zip(&all).zip(&mut places).map(|((rank, one), place)| rank.put(place, one.clone()));
    let puts: Vec<_> = puts.collect();
    drop(together);
    // Whoever is told of it may run what it likes.
    drop(places);
    let answers = ranks.iter().zip(&all).zip(puts).map(|((rank, one), put)| Slot::Waits(rank.handed_in(one, put)));
    WideAnswer { answers: answers.collect() }
}

/// Whether these are all ranks of their world.
fn are_all(ranks: &[Rank]) -> bool {
    let mut numbers: Vec<usize> = ranks.iter().map(Rank::rank).collect();
    numbers.sort_unstable();
    numbers.into_iter().eq(0..ranks[0].size())
}

/// All of them were refused.
fn refused<R: Request>(ranks: &[Rank], requests: Vec<R>, reason: Reason, error: &Error) -> WideAnswer<R::Back> {
    ranks.iter().zip(&requests).for_each(|(rank, _)| rank.count_refused());
    let of = |request: R| Slot::Has(Err(Failed::new(reason, error.clone(), guarded(|| request.into_back()))));
    let mut answers: Vec<_> = requests.into_iter().map(of).collect();
    if answers.is_empty() {
        answers.push(Slot::Has(Err(Failed::new(reason, error.clone(), None))));
    }
    WideAnswer { answers }
}

impl<B> WideAnswer<B> {
    /// Cancels the request on all ranks, unless one has begun; whether it was cancelled. It is not where the world has ranks in
    /// other processes, or where these are not all of its ranks: they would miss it.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::world::World;
    /// # fn main() -> gpucomm::Result<()> {
    /// let world = World::new(&Device::all()?)?;
    /// let barrier = world.barrier();
    /// let cancelled = barrier.cancel();
    /// assert_eq!(barrier.wait().is_err(), cancelled);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel(&self) -> bool {
        let mut cancelled = !self.answers.is_empty();
        for slot in &self.answers {
            cancelled &= matches!(slot, Slot::Waits(answer) if answer.cancel());
        }
        cancelled
    }

    /// Waits for all on this thread.
    ///
    /// # Errors
    /// The first failure, with the buffers of all ranks.
    pub fn wait(self) -> Result<Vec<B>, Failed<Left<B>>> {
        wait_for(self, None).unwrap_or_else(|_| Err(Self::nothing()))
    }

    /// Waits no longer than `timeout`; gives itself back where there is no answer yet.
    ///
    /// # Errors
    /// Itself.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Result<Vec<B>, Failed<Left<B>>>, Self> {
        wait_for(self, Some(Deadline::after(timeout)))
    }

    /// The answers of the ranks, one by one, in their order.
    ///
    /// # Errors
    /// Why there are none, with the buffers, where the request was refused before it was submitted.
    pub fn into_answers(mut self) -> Result<Vec<Answer<B>>, Failed<Left<B>>> {
        if !self.answers.iter().all(|slot| matches!(slot, Slot::Waits(_))) {
            return Err(self.gathered().err().unwrap_or_else(Self::nothing));
        }
        let all = std::mem::take(&mut self.answers).into_iter();
        Ok(all.filter_map(|slot| if let Slot::Waits(answer) = slot { Some(answer) } else { None }).collect())
    }

    /// What has come of all of them, once there is an answer of each.
    fn gathered(&mut self) -> Result<Vec<B>, Failed<Left<B>>> {
        let mut first = None;
        let mut backs: Left<B> = Vec::with_capacity(self.answers.len());
        for slot in &mut self.answers {
            let outcome = match std::mem::replace(slot, Slot::Given) {
                Slot::Waits(mut answer) => answer.take(),
                Slot::Has(outcome) => outcome,
                Slot::Given => return Err(Self::nothing()),
            };
            match outcome {
                Ok(back) => backs.push(Some(back)),
                Err(Failed { error, reason, buffers }) => {
                    backs.push(buffers);
                    // That others were cancelled, or the world is down, follows from what went wrong.
                    first = match first {
                        Some((Reason::Down, _)) | None => Some((reason, error)),
                        first => first,
                    };
                }
            }
        }
        match first {
            None => Ok(backs.into_iter().flatten().collect()),
            Some((reason, error)) => Err(Failed::new(reason, error, Some(backs))),
        }
    }

    fn nothing() -> Failed<Left<B>> {
        let reason = "its answer was given already".to_owned();
        Failed::new(Reason::Failed, Error::InvalidUsage { operation: SUBMIT, reason }, None)
    }
}

impl<B> Unpin for WideAnswer<B> {}

impl<B> Future for WideAnswer<B> {
    type Output = Result<Vec<B>, Failed<Left<B>>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut ready = true;
        for slot in &mut self.answers {
            // None is taken before all are there: they may still be asked for one by one.
            if let Slot::Waits(answer) = slot {
                ready &= answer.poll_ready(context);
            }
        }
        if ready { Poll::Ready(self.gathered()) } else { Poll::Pending }
    }
}

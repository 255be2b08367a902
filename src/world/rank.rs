//! A rank of a world, as who submits requests sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::answer::{Answer, Shared};
use super::at::At;
use super::completion::Completion;
use super::core::{Core, Way};
use super::counters::count;
use super::failure_reason::Reason;
use super::health::Phase;
use super::in_order::{Enqueued, InOrder};
use super::lane::{LONGEST, Lane};
use super::options::Overflow;
use super::queue::{Place, Queue};
use super::rank_thread::{Generation, RankThread};
use super::request::Request;
use super::task::{Meta, Task, Ticket};
use super::terms::{Terms, Watcher};
use crate::cuda::{Device, is_forked, refuse_in_child};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::lock::MutexGuard;
use crate::name::Name;

/// A rank of a generation of a [`World`](super::World), and how requests are submitted to it. Cheap to clone, and may be sent to other threads.
///
/// Its requests are done in the order in which they were submitted, or in that of their [lanes](Lane). See the [module](super#requests) for what there is.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use gpucomm::world::{World, completion::HostCallback, requests};
/// use gpucomm::{Device, DeviceBuffer, InPlace, ReduceOp, Stream};
///
/// # fn main() -> gpucomm::Result<()> {
/// let world = World::new(&Device::all()?)?;
/// let mut answers = Vec::new();
/// for rank in world.ranks() {
///     let x = DeviceBuffer::from_slice(&Stream::new(rank.device())?, &[rank.rank() as u32; 10])?;
///     let rank = rank.with_timeout(Duration::from_secs(30)).with_completion(Arc::new(HostCallback));
///     answers.push(rank.all_reduce(InPlace(x), ReduceOp::Max));
/// }
/// for answer in answers {
///     let x = answer.wait()?;
///     assert_eq!(x.to_vec(&Stream::new(x.device())?)?, [world.size() as u32 - 1; 10]);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Rank {
    core: Arc<Core>,
    device: Option<Device>,
    rank_thread: Option<(Arc<Generation>, Arc<RankThread>)>,
    terms: Arc<Terms>,
}

/// The result of putting a request into a queue: the generation whose waiters for room must try again, if any.
pub(super) type Put = Result<Option<Arc<Generation>>, (Reason, Error)>;

impl Rank {
    pub(super) fn new(core: &Arc<Core>, generation: u64, rank: usize, device: Option<Device>) -> Self {
        let now = core.now().filter(|now| now.number == generation);
        let rank_thread = now.and_then(|now| {
            let rank_thread = Arc::clone(now.rank_thread(rank)?);
            Some((now, rank_thread))
        });
        let terms = Terms {
            world: core.name.clone(),
            rank,
            generation,
            lane: None,
            completion: Watcher::new(Arc::clone(&core.options.completion)),
            timeout: core.options.timeout,
            waits: core.options.overflow == Overflow::Wait,
            counters: Arc::clone(&core.counters),
        };
        let device = rank_thread.as_ref().map(|(_, rank_thread)| rank_thread.device).or(device);
        Self { core: Arc::clone(core), device, rank_thread, terms: Arc::new(terms) }
    }

    /// Its number.
    pub fn rank(&self) -> usize {
        self.terms.rank
    }

    /// The name of its world.
    pub(super) fn world_name(&self) -> &Name {
        &self.core.name
    }

    /// Whether it is a rank of the world that `core` belongs to.
    pub(super) fn is_of(&self, core: &Core) -> bool {
        std::ptr::eq(&*self.core, core)
    }

    /// How many ranks its generation has; 0 while that has not begun.
    pub fn size(&self) -> usize {
        self.rank_thread.as_ref().map_or(0, |(_, rank_thread)| rank_thread.size)
    }

    /// The generation that it is of.
    pub fn generation(&self) -> u64 {
        self.terms.generation
    }

    /// Its device.
    ///
    /// # Panics
    /// Where its generation has not begun, and nothing is known of it.
    #[track_caller]
    pub fn device(&self) -> Device {
        self.device.expect("the world is down, and has had no such rank before")
    }

    /// The same, whose requests go through a lane.
    #[must_use]
    pub fn with_lane(mut self, lane: &Lane) -> Self {
        Arc::make_mut(&mut self.terms).lane = Some(lane.clone());
        self
    }

    /// The same, whose requests may take so long, from where they are submitted.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.terms).timeout = timeout;
        self
    }

    /// The same, whose requests are found to be done in this way.
    #[must_use]
    pub fn with_completion(mut self, completion: Arc<dyn Completion>) -> Self {
        Arc::make_mut(&mut self.terms).completion = Watcher::new(completion);
        self
    }

    /// The same, which does so with requests for which there is no room.
    #[must_use]
    pub fn with_overflow(mut self, overflow: Overflow) -> Self {
        Arc::make_mut(&mut self.terms).waits = overflow == Overflow::Wait;
        self
    }

    /// How many requests wait for it, on the host.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::world::World;
    /// # fn main() -> gpucomm::Result<()> {
    /// let world = World::new(&Device::all()?)?;
    /// assert_eq!(world.rank(0)?.queued(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn queued(&self) -> usize {
        self.rank_thread.as_ref().filter(|_| !is_forked()).map_or(0, |(_, rank_thread)| rank_thread.queue.len())
    }

    /// Submits a request: one of this crate, of your own, or several as a group, in a tuple or a list.
    ///
    /// It is checked first, and refused where it is wrong. Where its queue is full, this waits, or
    /// refuses it, as [`Rank::with_overflow`] says.
    pub fn submit<R: Request>(&self, request: R) -> Answer<R::Back> {
        self.hand_in(request, self.ticket(), false, None)
    }

    /// Submits a request whose answer comes as soon as it is enqueued, in stream order: with its buffers, which may be used on the device at
    /// once, and an event to wait for.
    ///
    /// ```
    /// use gpucomm::world::{World, requests};
    /// use gpucomm::{Device, DeviceBuffer, InPlace, ReduceOp, Stream};
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// let world = World::new(&Device::all()?[..1])?;
    /// let stream = Stream::new(world.devices()[0])?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1f32; 100])?;
    /// let enqueued = world.rank(0)?.submit_in_order(requests::all_reduce(InPlace(x), ReduceOp::Sum)).wait()?;
    /// // What comes now waits on the device, not on the host.
    /// stream.wait_event(&enqueued.event.expect("it is enqueued"))?;
    /// assert_eq!(enqueued.buffers.to_vec(&stream)?, [1.0; 100]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn submit_in_order<R: Request>(&self, request: R) -> Answer<Enqueued<R::Back>> {
        self.hand_in(InOrder::new(request), self.ticket(), true, None)
    }

    /// The queue of the rank, or why it takes nothing.
    pub(super) fn queue(&self) -> Result<Arc<Queue>, (Reason, Error)> {
        match &self.rank_thread {
            Some((_, rank_thread)) => Ok(Arc::clone(&rank_thread.queue)),
            None => match self.core.way(self.terms.generation, self.terms.rank)? {
                Way::RankThread(_, rank_thread) => Ok(Arc::clone(&rank_thread.queue)),
                Way::Queue(_, queue) => Ok(queue),
            },
        }
    }

    /// A place in its queue, for a request that was submitted at that time: its deadline is that of the wait for room, too.
    pub(super) fn place(&self, submitted: Instant) -> Result<Place, (Reason, Error)> {
        let deadline = self.terms.waits.then(|| Deadline::since(submitted, self.terms.timeout));
        self.queue()?.place(self.terms.lane.as_ref(), deadline.as_ref())
    }

    /// Submits a request, into its place where it has one.
    pub(super) fn hand_in<R: Request>(
        &self,
        mut request: R,
        ticket: Ticket,
        in_order: bool,
        mut place: Option<Place>,
    ) -> Answer<R::Back> {
        let submitted = Instant::now();
        let checked = self.check(&mut request);
        let shared = self.shared(request, ticket, in_order, submitted);
        let put = match checked {
            Err(error) if self.is_over() => Err((Reason::Down, error)),
            Err(error) => Err((Reason::Refused, error)),
            Ok(()) => self.put(&mut place, shared.clone()),
        };
        self.handed_in(&shared, put)
    }

    /// A request that is to be put into the queue.
    pub(super) fn shared<R: Request>(
        &self,
        request: R,
        ticket: Ticket,
        in_order: bool,
        submitted: Instant,
    ) -> Arc<Shared<R>> {
        let deadline = Deadline::since(submitted, self.terms.timeout);
        let terms = Arc::clone(&self.terms);
        let meta = Meta { operation: request.operation(), submitted, deadline, in_order, ticket, terms };
        Shared::new(meta, request)
    }

    /// Wakes the waiters for room, or refuses the request. Runs code of users, so the caller holds no lock.
    pub(super) fn handed_in<R: Request>(&self, shared: &Arc<Shared<R>>, put: Put) -> Answer<R::Back> {
        match put {
            Ok(None) => {}
            Ok(Some(generation)) => generation.ask_again(),
            Err(why) => {
                let (reason, error) = self.why(shared.meta().operation, why);
                shared.refuse(reason, error);
            }
        }
        Answer::of(shared)
    }

    /// The ticket of a request of this rank alone.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket::single(self.size() == 1)
    }

    /// Counts a request that was refused before it was made.
    pub(super) fn count_refused(&self) {
        self.terms.counters.submitted.count(self.terms.rank);
        count(&self.terms.counters.failed);
    }

    /// What is wrong with a request.
    pub(super) fn check<R: Request>(&self, request: &mut R) -> Result<()> {
        // A forked child lacks the threads that answer. A host function may submit.
        refuse_in_child(request.operation(), "CUDA")?;
        if let (Some(wanted), Some(own)) = (request.device(), self.device)
            && wanted != own
        {
            let kind = request.element().map_or("any elements".to_owned(), |kind| format!("elements of {kind}"));
            let expected = format!("{own}, which rank {} has", self.terms.rank);
            return Err(Error::argument(request.operation(), "device", expected, format!("{wanted}, with {kind}")));
        }
        let Terms { rank, generation, lane, .. } = &*self.terms;
        // The order of submission counts in such a world: equal requests of different lanes would be taken for each other.
        if let Some(lane) = lane
            && !self.core.options.sequenced
        {
            let expected = "a lane only in a world with WorldOptions::with_sequenced(true)";
            let got = format!("{:?} in a world without", lane.name);
            return Err(Error::argument(request.operation(), "lane", expected, got));
        }
        if let Some(lane) = lane
            && !lane.has(*rank)
        {
            let expected = format!("a lane in which rank {rank} takes part");
            return Err(Error::argument(request.operation(), "lane", expected, format!("{:?}", lane.name)));
        }
        if let Some(lane) = lane
            && lane.key.len() > LONGEST
        {
            let expected = format!("a name and ranks of at most {LONGEST} bytes in all");
            return Err(Error::argument(request.operation(), "lane", expected, format!("{} bytes", lane.key.len())));
        }
        let Some((_, rank_thread)) = &self.rank_thread else { return Ok(()) };
        // Where it has ended, its queue says so.
        let Some(communicator) = rank_thread.communicator() else { return Ok(()) };
        let size = communicator.size();
        if let Some(rank) = lane.as_ref().map(Lane::last).filter(|rank| *rank >= size) {
            let expected = format!("a lane of ranks below {size}");
            return Err(Error::argument(request.operation(), "lane", expected, format!("one with rank {rank}")));
        }
        request.check(&At::new(&communicator, &rank_thread.stream, *generation))
    }

    /// Whether the generation is not the one that takes requests.
    fn is_over(&self) -> bool {
        self.core.health_state.now() != (self.terms.generation, Phase::Up)
    }

    /// Puts a request into the queue. The place, where that is not taken, is the caller's to drop.
    pub(super) fn put(&self, place: &mut Option<Place>, task: Arc<dyn Task>) -> Put {
        if place.is_none() && self.rank_thread.is_none() {
            *place = Some(self.place(task.meta().submitted)?);
        }
        let found;
        let (generation, rank_thread) = match &self.rank_thread {
            Some(own) => own,
            None => match self.core.way(self.terms.generation, self.terms.rank)? {
                Way::RankThread(generation, rank_thread) => {
                    found = (generation, rank_thread);
                    &found
                }
                // It is there before the rank begins, which has it announced then.
                Way::Queue(next, queue) => {
                    let put = queue.push(place, task);
                    drop(next);
                    return put.map(|()| None);
                }
            },
        };
        rank_thread.queue.push(place, task)?;
        let again = generation.announce(self.terms.lane.as_ref(), self.terms.rank);
        Ok(again.then(|| Arc::clone(generation)))
    }

    /// Why `operation` has no answer: where a generation was followed by another one, that is why.
    pub(super) fn why(&self, operation: &'static str, (reason, error): (Reason, Error)) -> (Reason, Error) {
        let (reason, error) = match reason {
            Reason::Down | Reason::Closed => match self.core.way(self.terms.generation, self.terms.rank) {
                Err((now @ (Reason::Stale | Reason::Closed), error)) => (now, error),
                _ => (reason, error),
            },
            _ => (reason, error),
        };
        let error = match (reason, error) {
            (Reason::Full, Error::InvalidUsage { reason: said, .. }) => {
                Error::InvalidUsage { operation, reason: format!("rank {}: {said}", self.terms.rank) }
            }
            // Queues, and the core, do not know the request.
            (Reason::Closed | Reason::Stale, Error::Departed { rank, how, .. }) => {
                Error::Departed { operation, rank, how }
            }
            (Reason::Closed | Reason::Stale, Error::InvalidUsage { reason, .. }) => {
                Error::InvalidUsage { operation, reason }
            }
            (Reason::Down, Error::Aborted { reason: said, .. }) => {
                Error::Aborted { operation, reason: said.with_text("; the world is down until it is rebuilt") }
            }
            (_, error) => error,
        };
        (reason, error)
    }

    /// Held by who puts requests into the queues of several ranks: all ranks get them in one order, up or down.
    pub(super) fn together(&self) -> MutexGuard<'_, ()> {
        self.core.together.lock()
    }

    /// The lane that it was given.
    pub(super) fn lane_of(&self) -> Option<&Lane> {
        self.terms.lane.as_ref()
    }
}

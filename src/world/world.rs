//! A world: all ranks of this process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::core::{Core, Source};
use super::counters::Metrics;
use super::end::{abort, close, end_in_drop};
use super::health::{Health, HealthWatch, Phase};
use super::monitor;
use super::options::{Members, WorldOptions};
use super::rank::Rank;
use super::rebuild;
use super::request::Request;
use super::wide::{self, WideAnswer};
use crate::cuda::{Device, is_forked, refuse_in_child};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::launch::Launch;
use crate::nccl::{Clique, Communicator, init_rank_of_world};

/// Ranks as actors: a thread for each rank of this process, which owns its communicator and its stream, takes requests, and answers them.
/// See the [module](super).
///
/// Dropping it [closes](World::close) it; while panicking it [aborts](World::abort) it. It takes ten
/// seconds or its timeout, whichever is less, for all that a thread drops one after the other. Each
/// world that has work on a device then, which does not end, takes about a second more.
pub struct World {
    core: Arc<Core>,
    /// The ranks that this process had last, and their devices.
    devices: Vec<Device>,
}

impl World {
    /// Ranks on these devices, all in this process: rank `r` on `devices[r]`, as [`Clique::init_all`].
    ///
    /// ```
    /// use gpucomm::Device;
    /// use gpucomm::world::World;
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// let world = World::new(&Device::all()?)?;
    /// assert_eq!(world.size(), Device::count()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Clique::init_all`]; [`Error::InvalidUsage`] where a thread cannot be started.
    pub fn new(devices: &[Device]) -> Result<Self> {
        Self::new_with(devices, &WorldOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As there; [`Error::InvalidArgument`] for a [queue](WorldOptions::with_queue) without room.
    pub fn new_with(devices: &[Device], options: &WorldOptions) -> Result<Self> {
        options.check()?;
        let clique = Clique::init_all_with(devices, &options.named_init(options.name.as_ref()))?;
        Self::of_clique(clique, options)
    }

    /// Of a clique that there is.
    ///
    /// ```
    /// use gpucomm::world::{World, WorldOptions};
    /// use gpucomm::{Clique, Device};
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// let world = World::of_clique(clique, &WorldOptions::default())?;
    /// world.barrier().wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidUsage`] where a thread cannot be started; what CUDA says of streams;
    /// [`Error::InvalidArgument`] for a [queue](WorldOptions::with_queue) without room.
    pub fn of_clique(clique: Clique, options: &WorldOptions) -> Result<Self> {
        options.check()?;
        Self::start(clique.into_ranks(), options, Source::Here)
    }

    /// Of the communicator of one rank that there is: whoever has made it has promised what its operations need. It cannot be
    /// [rebuilt](Self::rebuild), as there is nothing at which ranks would meet.
    ///
    /// ```
    /// use gpucomm::world::{World, WorldOptions};
    /// use gpucomm::{Communicator, Device, UniqueId};
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (rank, size) = (0, 1);
    /// // SAFETY: all ranks run this program.
    /// let comm = unsafe { Communicator::init_rank(Device::new(0)?, size, &UniqueId::new()?, rank)? };
    /// let world = World::of_communicator(comm, &WorldOptions::default())?;
    /// world.rank(rank)?.barrier().wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`World::of_clique`].
    pub fn of_communicator(communicator: Communicator, options: &WorldOptions) -> Result<Self> {
        options.check()?;
        Self::start(vec![communicator], options, Source::Given)
    }

    /// One rank of those that a launcher has started, in a process each: on its [device](Launch::device), and in its
    /// [exchange](Launch::join).
    ///
    /// ```
    /// use gpucomm::Launch;
    /// use gpucomm::nccl::InitOptions;
    /// use gpucomm::world::{World, WorldOptions};
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// let init = InitOptions::new().with_checked(true);
    /// let options = WorldOptions::new().with_init(init).with_sequenced(true);
    /// // SAFETY: all ranks run this program; what they submit is compared, and each lane has one order.
    /// let world = unsafe { World::from_launch(&Launch::from_env()?, &options)? };
    /// world.barrier().wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Launch::join`], [`Launch::find_device`] and [`Communicator::init_rank_over`]; as [`World::of_clique`].
    ///
    /// # Safety
    /// As [`Communicator::init_rank`], for what the ranks submit, in this generation and all that come of it: all submit the same collectives in the same order, be it of each
    /// lane where the world is [sequenced](WorldOptions::with_sequenced). A request that is refused on one rank, as
    /// wrong or for want of room, is one that it has not submitted: it submits no other one unless the others have not submitted it either, or the world
    /// was [brought down](World::fail). What has not begun in time, or could not be enqueued, brings the world down by itself. Where its
    /// communicators are [checked](crate::nccl::InitOptions::with_checked), what does not agree is an error instead.
    pub unsafe fn from_launch(launch: &Launch, options: &WorldOptions) -> Result<Self> {
        let (exchange, device) = (launch.join()?, launch.find_device()?);
        // SAFETY: the caller promises it.
        unsafe { Self::join(exchange, device, options) }
    }

    /// One rank of those of an exchange.
    ///
    /// An exchange may have several worlds, one after the other or at the same time. Each of them has keys of its own in the
    /// store. All ranks join them in the same order.
    ///
    /// ```
    /// use gpucomm::exchange::{Exchange, Threads};
    /// use gpucomm::world::{World, WorldOptions, requests};
    /// use gpucomm::{Device, Result};
    ///
    /// # fn main() -> Result<()> {
    /// # let ranks = Device::count()?.min(2);
    /// let place = Threads::new(ranks);
    /// let run = |rank| -> Result<()> {
    ///     let exchange = Exchange::join(place.store(rank)?)?;
    ///     // SAFETY: all ranks run this program.
    ///     let world = unsafe { World::join(exchange, Device::new(rank)?, &WorldOptions::default())? };
    ///     Ok(world.rank(rank)?.barrier().wait()?)
    /// };
    /// std::thread::scope(|scope| {
    ///     let run = &run;
    ///     let all: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || run(rank))).collect();
    ///     all.into_iter().try_for_each(|rank| rank.join().expect("no panic"))
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`World::from_launch`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn join(exchange: Exchange, device: Device, options: &WorldOptions) -> Result<Self> {
        let (communicator, exchange) =
            init_rank_of_world(device, &exchange, &options.named_init(options.name.as_ref()), options.check())?;
        Self::start(vec![communicator], options, Source::Far(exchange))
    }

    fn start(communicators: Vec<Communicator>, options: &WorldOptions, source: Source) -> Result<Self> {
        let devices = communicators.iter().map(Communicator::device).collect();
        let given = communicators.first().map(|first| first.inner().name.clone());
        let name = options.name.clone().or(given).unwrap_or_default();
        // What the world is rebuilt with has the same name.
        let options = options.clone().with_init(options.named_init(Some(&name)));
        let core = Core::new(name, options, source);
        monitor::start(&core)?;
        let world = Self { core, devices };
        let begun = {
            let _turn = world.core.turn.lock();
            world.core.begin(communicators)
        };
        begun?;
        Ok(world)
    }

    /// The name by which errors and traces call the world: that of [`WorldOptions::with_name`], or
    /// that of its communicators.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::world::{World, WorldOptions};
    /// # fn main() -> gpucomm::Result<()> {
    /// let world = World::new_with(&Device::all()?, &WorldOptions::new().with_name("experts")?)?;
    /// let name = world.name();
    /// assert_eq!(name, "experts");
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        self.core.name.as_str()
    }

    /// How many ranks the generation has, here and elsewhere; that of the last one where it is down.
    pub fn size(&self) -> usize {
        self.core.health_state.health().size
    }

    /// The devices of the ranks that this process has, in their order.
    pub fn devices(&self) -> Vec<Device> {
        match self.core.now() {
            Some(now) => now.rank_threads.iter().map(|rank_thread| rank_thread.device).collect(),
            None => self.devices.clone(),
        }
    }

    /// A rank of this process, of the generation that there is, or, while the world is down, of the next one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where this process has no such rank; [`Error::InvalidUsage`] in a forked child.
    pub fn rank(&self, rank: usize) -> Result<Rank> {
        refuse_in_child("World::rank", "CUDA")?;
        let (number, phase) = self.core.health_state.now();
        let now = self.core.now();
        let known = now.as_ref().and_then(|now| now.rank_thread(rank)).map(|rank_thread| rank_thread.device);
        if known.is_none() {
            let ranks: Vec<_> =
                now.iter().flat_map(|now| &now.rank_threads).map(|rank_thread| rank_thread.rank).collect();
            return Err(Error::argument("World::rank", "rank", format_args!("one of {ranks:?}"), rank));
        }
        let number = if phase == Phase::Down { number + 1 } else { number };
        Ok(Rank::new(&self.core, number, rank, known))
    }

    /// The ranks of this process.
    pub fn ranks(&self) -> Vec<Rank> {
        let (number, phase) = self.core.health_state.now();
        let number = if phase == Phase::Down { number + 1 } else { number };
        let rank_threads = self.core.now().map(|now| now.rank_threads.clone()).unwrap_or_default();
        rank_threads
            .iter()
            .map(|rank_thread| Rank::new(&self.core, number, rank_thread.rank, Some(rank_thread.device)))
            .collect()
    }

    /// Submits a request to each rank of this process, in their order, or to none where one of them is wrong. All ranks take the requests of
    /// all who do this in the same order.
    pub fn submit<R: Request>(&self, requests: impl IntoIterator<Item = R>) -> WideAnswer<R::Back> {
        wide::submit(&self.ranks(), requests.into_iter().collect())
    }

    /// The same, through ranks that were told how: with a lane, a deadline or a completion. Those of a collective are all that this process has; of
    /// messages, or of a lane of some ranks, those that take part. Ranks of another world are refused.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use std::time::Duration;
    /// use gpucomm::world::{World, requests};
    /// # fn main() -> gpucomm::Result<()> {
    /// let world = World::new(&Device::all()?)?;
    /// let ranks: Vec<_> = world.ranks().into_iter().map(|rank| rank.with_timeout(Duration::from_secs(5))).collect();
    /// world.submit_through(&ranks, ranks.iter().map(|_| requests::barrier())).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn submit_through<R: Request>(
        &self,
        ranks: &[Rank],
        requests: impl IntoIterator<Item = R>,
    ) -> WideAnswer<R::Back> {
        wide::submit_through(&self.core, ranks, requests.into_iter().collect())
    }

    /// How it is.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::world::{World, health::Phase};
    /// # fn main() -> gpucomm::Result<()> {
    /// let world = World::new(&Device::all()?)?;
    /// assert_eq!((world.health().generation, world.health().phase), (1, Phase::Up));
    /// # Ok(())
    /// # }
    /// ```
    pub fn health(&self) -> Health {
        self.core.health_state.health()
    }

    /// Tells when that changes.
    pub fn watch(&self) -> HealthWatch {
        HealthWatch::new(&self.core.health_state)
    }

    /// What it has done so far.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::world::World;
    /// # fn main() -> gpucomm::Result<()> {
    /// let world = World::new(&Device::all()?)?;
    /// world.barrier().wait()?;
    /// assert_eq!((world.metrics().done, world.metrics().failed), (world.size() as u64, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn metrics(&self) -> Metrics {
        self.core.counters.read()
    }

    /// Brings it down by hand: what is under way ends with this reason, here and, over an exchange, elsewhere.
    pub fn fail(&self, reason: &str) {
        // The world is the parent's.
        if is_forked() {
            return;
        }
        if let Some(now) = self.core.now() {
            let cause = Error::Aborted { operation: "World::fail", reason: reason.into() };
            self.core.fail(&now, &cause.about(self.core.name.world()));
        }
    }

    /// Makes a new generation of a world that is down; one that is up is left as it is. Over an exchange all ranks that are left call it, or are to be
    /// rebuilt [automatically](super::Rebuild::Automatic), and vote who they are, as in [`Communicator::recover`].
    ///
    /// Before it begins, it waits until all requests of the generation that has failed are answered. It may take the timeout of [`WorldOptions::with_init`] for
    /// each step: as long as a rank that does not come is not known to have [ended](super#failures).
    ///
    /// Over an exchange all ranks pass the same `members`. If they do not, each of them returns an error, and they may call it again. The ranks vote once
    /// after each failure: who comes too late has no part in the generations that follow, in however many
    /// attempts, and with [`Members::Same`] none of these succeeds. A rank whose attempt has failed after the vote has used up its communicator; it
    /// meets the others in its next attempt only if theirs have failed as well.
    ///
    /// ```
    /// use gpucomm::Device;
    /// use gpucomm::world::{Members, World};
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// let world = World::new(&Device::all()?)?;
    /// let before = world.rank(0)?;
    /// world.fail("a test");
    /// world.rebuild(Members::Survivors)?;
    /// world.barrier().wait()?;
    /// // A reference of the generation before.
    /// let refused = before.barrier().wait().expect_err("it is of another generation");
    /// assert_eq!((refused.reason, world.health().generation), (gpucomm::world::Reason::Stale, 2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Clique::init_all`] and [`Communicator::recover`]; with [`Members::Same`], that of a rank that does not come;
    /// [`Error::InvalidUsage`] if ranks pass different members, for a world of a communicator that it was given, within a host function of a stream, and once
    /// it was closed. It stays down, and may be tried again.
    pub fn rebuild(&self, members: Members) -> Result<()> {
        refuse_in_child("World::rebuild", "CUDA")?;
        let deadline = Deadline::after(self.core.options.init.timeout);
        rebuild::rebuild(&self.core, members, &deadline)
    }

    /// Ends it in order: what was submitted is done before, or ends with an error. It waits no longer than [`WorldOptions::with_timeout`], and a few
    /// seconds that the end of a communicator may take. One that is down ends at once. It waits up to five seconds for a rebuild that
    /// is inside a call of NCCL or of the store.
    ///
    /// What ranks in other processes have enqueued, or enqueue later, and that waits for a rank of this process, fails there at once:
    /// their world goes down, with an [`Error::Departed`] that names this rank. Two things wait until their deadlines: a first message to
    /// a rank of this process, and a first operation of all, for which NCCL connects ranks inside the call that enqueues it; and
    /// requests of one's own on a communicator that was made by a split.
    ///
    /// ```
    /// use gpucomm::Device;
    /// use gpucomm::world::World;
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// let world = World::new(&Device::all()?)?;
    /// let barrier = world.barrier();
    /// world.close()?;
    /// barrier.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] where something was not done in time, and was aborted; why it has failed meanwhile; those of [`Communicator::close`];
    /// [`Error::InvalidUsage`] in a forked child.
    pub fn close(self) -> Result<()> {
        close(&self.core, self.core.options.timeout)
    }

    /// As [`World::close`], with the given timeout.
    ///
    /// ```
    /// use gpucomm::Device;
    /// use gpucomm::world::World;
    /// use std::time::Duration;
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// let world = World::new(&Device::all()?)?;
    /// let barrier = world.barrier();
    /// world.close_timeout(Duration::from_secs(10))?;
    /// barrier.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn close_timeout(self, timeout: Duration) -> Result<()> {
        close(&self.core, timeout)
    }

    /// Ends it at once: what is under way fails with [`Error::Aborted`] and this reason, with its buffers. It waits up to ten seconds for
    /// NCCL to stop, and up to five seconds for a rebuild that is inside a call of NCCL or of the store.
    ///
    /// In other processes, what waits for a rank of this process fails as after [`World::fail`].
    ///
    /// ```
    /// use gpucomm::Device;
    /// use gpucomm::world::World;
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// let world = World::new(&Device::all()?)?;
    /// world.abort("there is something better to do")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidUsage`] in a forked child.
    pub fn abort(self, reason: &str) -> Result<()> {
        abort(&self.core, reason)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Health { generation, phase, size, .. } = self.health();
        let mut all = f.debug_struct("World");
        all.field("name", &self.name());
        all.field("generation", &generation).field("phase", &phase).field("size", &size).finish_non_exhaustive()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        end_in_drop(&self.core);
    }
}

//! How a rank starts.

use super::communicator::Communicator;
use super::lifecycle::{start, start_over_exchange};
use super::setup::environment;
use super::setup::init_options::InitOptions;
use super::setup::unique_id::UniqueId;
use crate::cuda::Device;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::exchange::Exchange;

impl Communicator {
    /// Wraps `ncclCommInitRankConfig`: rank `rank` of `size`, with default options.
    ///
    /// All ranks call it with the same id and size. It returns when all have come, or after the default timeout.
    ///
    /// ```
    /// # use gpucomm::{Communicator, Device, UniqueId};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (rank, size) = (0, 1);
    /// // Rank 0 makes the id, the others have got its bytes: from an `Exchange`, say.
    /// let id = UniqueId::new()?;
    /// // SAFETY: all ranks run this program, and so issue the same operations.
    /// let comm = unsafe { Communicator::init_rank(Device::new(0)?, size, &id, rank)? };
    /// assert_eq!((comm.rank(), comm.size()), (rank, size));
    /// comm.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] where a rank does not come; [`Error::InvalidArgument`] where `rank` is not below `size`, or where the
    /// environment or a file of NCCL's sets `NCCL_COMM_BLOCKING` to 0, which would make a communicator whose operations fail, or
    /// `NCCL_CTA_POLICY` to the copy engines (2, or `ZERO`), for which ranks agree on too little; [`Error::LibraryTooOld`];
    /// [`Error::InvalidUsage`] within a host function, or where no thread can be started; [`Error::Aborted`] where the
    /// [`Clique::spmd`](super::Clique::spmd) that this is called in has failed; what NCCL says. `GPUCOMM_CHECKED` checks nothing here: where it is
    /// 1, that is said once on stderr; what is neither 0 nor 1 is an [`Error::InvalidArgument`].
    ///
    /// # Safety
    /// No rank can see what another one passes, and a peer that passes something else makes NCCL write beyond the buffers of this rank,
    /// or into others. All later calls are safe because of this promise: the ranks, in all processes, behave as one program. That is,
    /// on this communicator
    ///
    /// - all issue the same collectives, in the same order, with the same counts, element types, reductions and roots; the layouts of the
    ///   forms with `_v` belong together. Only the factors of a [`PreMulSum`](super::PreMulSum) may differ. Each send meets a receive of
    ///   the same count and type, in the order in which the two ranks issue them;
    /// - collectives that are in one [`group`](super::group) on one rank are in one group on all, the same ones in the same order. Messages may
    ///   be grouped in any way that [`group`](super::group) allows;
    /// - a collective that is in place on one rank is in place on all, as far as its form allows that;
    /// - a buffer of a collective is a window of this communicator ([`CommBuffer::is_window`](super::CommBuffer::is_window)) on all ranks
    ///   or on none. If it is one, it is the same window on all, the one that they allocated together, the data begins at the same element,
    ///   and has the same length. Both ends of a message are windows, or neither is;
    /// - the same goes for memory that was [registered](Communicator::register): in the same registration, the same element. All register
    ///   in the same order among their collectives, memory of the same kind: that of NCCL, say, or what other libraries have mapped so that
    ///   other processes can map it;
    /// - all call [`Communicator::alloc`] and its like, in the same order and with the same lengths, among their collectives;
    /// - all make windows over memory of theirs ([`Communicator::window`]) in the same order among them, of the same length, and at the same
    ///   byte of memory that was mapped as one, of which each has mapped as much; beside a window in the same memory all do or none does. What
    ///   is said of windows above holds for them;
    /// - all call `Communicator::prepare_one_sided` in the same order among them; and a rank drops a window only after it has
    ///   waited, by `Communicator::wait_signal`, for every put into its part;
    /// - all call [`Communicator::split`] in the same order among them; and what is promised here holds for each of the parts. Where these
    ///   share their resources ([`Config::with_split_share`](super::Config::with_split_share)), any two ranks issue what they do with each other on
    ///   the communicator and on the parts in one order;
    /// - the same goes for [`Communicator::shrink`], which all call that are not left out, with the same ranks, and for what comes of a
    ///   [revoked](Communicator::revoke) communicator. All that call [`Communicator::recover`] do so with an exchange of these very ranks, in
    ///   which they have the same numbers, and what is promised here holds for what they get;
    /// - windows and registrations are dropped alike: between two allocations, registrations or calls of [`Communicator::reclaim`], which all
    ///   make in the same order too, each rank drops the same ones;
    /// - what is captured into a CUDA graph on one rank is captured on all, into graphs that belong together. Those are launched equally often,
    ///   each time as one operation among these others, in the same place of their order; of messages alone, in the order of the two ranks;
    /// - graphs that use windows or registrations are dropped alike, or given something else to do ([`Graph::update`](crate::Graph::update)): a
    ///   window whose buffer is gone is dropped with the last graph that uses it. So that comes between the same two points as on the other
    ///   ranks, and not within a host function, which leaves it to another thread;
    /// - NCCL registers by itself what a graph moves, where it can: memory that was mapped as one, as that of [`Communicator::alloc`] and its
    ///   like is, of [`nccl::alloc`](super::alloc()), and of [`cuda::vmm`](crate::cuda::vmm); other memory of a
    ///   [`DeviceBuffer`](crate::DeviceBuffer) is not. So the send buffers of a captured collective are such memory on all ranks or on none,
    ///   that other processes can map by the same handles, and so are the receive buffers; and so are both ends of a captured message;
    /// - all run the same version of NCCL, with the same settings of it, and pass the same [`Config`](super::Config), but for
    ///   its name. NCCL compares next to nothing of it: each rank works out from its own how many channels
    ///   there are and which way an operation takes, after it has asked the others for the last time. Where `min_ctas`, `max_ctas`,
    ///   `cta_policy` or `num_rma_ctx` differ, one rank connects channels of which the other knows nothing: an error of NCCL's, or a wait
    ///   until the deadline, or data that nobody has sent. A clique has one for all ranks.
    ///
    /// The ranks of one process need no such promise, because they compare: see [`Clique`](super::Clique).
    ///
    /// One thing more is not seen across processes, though it makes nothing undefined: when a process aborts its rank, operations of
    /// the others that wait for it may complete, without an error, on data that was never sent. See [`Aborter::abort`](super::Aborter::abort). Ranks of one
    /// process are aborted together, also where each was made by this function.
    #[doc(alias = "ncclCommInitRankConfig")]
    pub unsafe fn init_rank(device: Device, size: usize, id: &UniqueId, rank: usize) -> Result<Self> {
        environment::cannot_check("Communicator::init_rank")?;
        let inner = start::one_rank("Communicator::init_rank", device, size, vec![*id], rank, &InitOptions::default());
        inner.map(Self::from_inner)
    }

    /// Wraps `ncclCommInitRankConfig`: like [`Communicator::init_rank`], with options.
    ///
    /// ```
    /// # use gpucomm::nccl::InitOptions;
    /// # use gpucomm::{Communicator, Device, UniqueId};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (rank, size, id) = (0, 1, UniqueId::new()?);
    /// let options = InitOptions::new().with_timeout(Duration::from_secs(60));
    /// // SAFETY: all ranks run this program, and so issue the same operations.
    /// let comm = unsafe { Communicator::init_rank_with(Device::new(0)?, size, &id, rank, &options)? };
    /// assert_eq!(comm.timeout(), Duration::from_secs(60));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::init_rank`].
    ///
    /// # Safety
    /// As [`Communicator::init_rank`].
    #[doc(alias = "ncclCommInitRankConfig")]
    pub unsafe fn init_rank_with(
        device: Device,
        size: usize,
        id: &UniqueId,
        rank: usize,
        options: &InitOptions,
    ) -> Result<Self> {
        environment::cannot_check("Communicator::init_rank_with")?;
        start::one_rank("Communicator::init_rank_with", device, size, vec![*id], rank, options).map(Self::from_inner)
    }

    /// Wraps `ncclGetUniqueId` and `ncclCommInitRankConfig`: the rank that this process is in `exchange`, of as many as that has.
    ///
    /// All ranks of the exchange call it. They get an id, and tell each other what they start with: which NCCL runs, the configuration, and
    /// whether they are checked.
    ///
    /// # Checked mode
    /// With [`InitOptions::with_checked`], or where `GPUCOMM_CHECKED` is 1 in the environment, on all ranks or on none, they also compare what
    /// they do, as the ranks of a [`Clique`](super::Clique) do: before a collective, a group, a split, an allocation or the launch of a graph
    /// is launched, a rank tells the others what it is about to do, over the exchange, and waits for them to come to the same.
    ///
    /// - Where one comes to something else, nothing of that is launched, and all report the same [`Error::Disagreement`], at once. So they do
    ///   where one closes its communicator in place of that.
    /// - Where one does not come within the [timeout](Communicator::set_timeout), [`Error::Timeout`] says who; where its process has ended,
    ///   [`Error::Departed`] does, at once. Both errors end the communicator, because the others count on this rank. A wait for the device ends
    ///   it with [`Error::Aborted`] about a second after the store knows that a process has ended which had not closed its rank, if it
    ///   waits for that rank: a message needs the other end of it, a [`shrink`](Communicator::shrink) those that it does not leave out, everything
    ///   else all ranks. An operation counts until somebody has waited for it. A first operation that waits inside NCCL ends within five
    ///   seconds more: NCCL's revoke may wake only a call that waits, and a slow one looks the same until then.
    /// - A message is compared by the two ranks that it concerns: the first to come goes on, the second compares.
    /// - Where a rank aborts the communicator, or has to, those in other processes are told, and end as well.
    ///
    /// They compare also what they make of the communicator: [`split`](Communicator::split), [`shrink`](Communicator::shrink),
    /// [`grow`](Communicator::grow), and what is made of a [revoked](Communicator::revoke) or
    /// [suspended](Communicator::suspend) one. A shrink, and a split of what was revoked, to which a rank does not come in time may be tried again;
    /// otherwise what is said above holds for these, too. What comes of that is checked as well, and so is what comes of a
    /// [recovery](Communicator::recover). What has grown is not, as those that come are in no exchange with the others:
    /// [`is_checked`](Communicator::is_checked) says so.
    ///
    /// A message that its other end leaves unanswered as it closes is told as such, at once. Where `GPUCOMM_CHECKED` is 1, ranks that start by an
    /// id alone ([`init_rank`](Communicator::init_rank) and its like) say once, on stderr, that they have nothing to compare over.
    /// Checked mode is for finding mistakes. Each operation costs two trips to the store, and a message up to three. No rank runs
    /// ahead of another.
    /// Processes of one host that see each other in `/proc` compare collectives in shared memory, from the third collective on. Without it,
    /// nothing is asked and nothing waits. The ranks must not leave the exchange, nor begin its next generation, before they have closed the
    /// communicator. Where rank 0 of a [`Tcp`](crate::exchange::Tcp) has ended, which serves the others, they tell each other nothing any more:
    /// each finds that at its next operation, with [`Error::Departed`], and whoever waits for rank 0 is told as above. A communicator leaves the exchange when it is dropped or closed, once the
    /// others have been told, which may take a moment.
    ///
    /// ```
    /// use gpucomm::exchange::{Exchange, Threads};
    /// use gpucomm::nccl::InitOptions;
    /// use gpucomm::{Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream};
    ///
    /// /// Ranks that reduce as many elements as their rank says.
    /// fn one(device: Device, exchange: &Exchange) -> Result<()> {
    ///     let options = InitOptions::new().with_checked(true);
    ///     // SAFETY: what the ranks do is compared, and what is not compared all do alike, as all run this program.
    ///     let comm = unsafe { Communicator::init_rank_over(device, exchange, &options)? };
    ///     let stream = Stream::new(device)?;
    ///     let mut x = DeviceBuffer::from_slice(&stream, &vec![1.0f32; 10 + comm.rank()])?;
    ///     comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)
    /// }
    /// # fn main() -> Result<()> {
    /// # if Device::count()? < 2 { return Ok(()) }
    /// # let place = Threads::new(2);
    /// # std::thread::scope(|scope| {
    /// #     let ranks = [0, 1].map(|rank| {
    /// #         let store = place.store(rank).unwrap();
    /// #         scope.spawn(move || one(Device::new(rank)?, &Exchange::join(store)?))
    /// #     });
    /// #     for rank in ranks {
    /// // rank 1 disagrees with rank 0: expected all_reduce of 10 f32, sum, in place (collective 1), got all_reduce of 11 f32, sum, in place
    /// #         let result = rank.join().expect("no panic");
    /// assert!(matches!(result, Err(Error::Disagreement { rank: 1, peer: 0, .. })));
    /// #     }
    /// # });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::init_rank_with`]; [`Error::Departed`] soon after the exchange knows that a rank has ended before it had started;
    /// [`Error::Disagreement`] where the ranks do not start with the same; [`Error::InvalidUsage`] on all ranks where
    /// two of them have one device, which NCCL would refuse; [`Error::Exchange`] at once where another rank cannot start, and says why; those of [`Exchange::all_gather`]; [`Error::InvalidArgument`] where `GPUCOMM_CHECKED` is
    /// something else than 0 or 1.
    ///
    /// # Safety
    /// As [`Communicator::init_rank`]. Checked mode finds what breaks most of these promises, but for these, which are the reason why it is unsafe
    /// all the same: nobody compares one-sided operations, in which order communicators are used that share their resources, when graphs are
    /// dropped, what is done with communicators that have grown, and what NCCL is told by its own variables.
    #[doc(alias("ncclGetUniqueId", "ncclCommInitRankConfig"))]
    pub unsafe fn init_rank_over(device: Device, exchange: &Exchange, options: &InitOptions) -> Result<Self> {
        let (inner, _) = start_over_exchange::one_rank(OVER, device, exchange, options, Ok(()))?;
        Ok(Self::from_inner(inner))
    }
}

const OVER: &str = "Communicator::init_rank_over";

/// Starts a rank of a world, as [`Communicator::init_rank_over`] does. Returns an exchange of the same ranks, too, which only
/// this world uses. The id of the communicator names it, so the ranks agree on it however many worlds each of them has made
/// before. If this rank is not `ready`, no rank starts, and the others get its error.
pub(crate) fn init_rank_of_world(
    device: Device,
    exchange: &Exchange,
    options: &InitOptions,
    ready: Result<()>,
) -> Result<(Communicator, Exchange)> {
    let (inner, id) = start_over_exchange::one_rank(OVER, device, exchange, options, ready)?;
    // The communicator uses the exchange with the name of the id alone.
    let own = exchange.named(&[b"world ", id.as_bytes().as_slice()].concat())?;
    Ok((Communicator::from_inner(inner), own))
}

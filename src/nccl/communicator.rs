//! One rank of a communicator.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::aborter::Aborter;
use super::life::abort::{AbortOutcome, GRACE, abort, start_abort};
use super::life::adopt;
use super::life::closing;
use super::life::init;
use super::raw::check;
use super::raw::outside::outside_of_host_functions;
use super::setup::init_options::InitOptions;
use super::setup::unique_id::UniqueId;
use super::state::inner::Inner;
use super::state::standing::State;
use crate::cuda::Device;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::sys;

/// Wraps `ncclComm_t`: one rank, on one device.
///
/// It may be moved between threads and shared by them; one call is made at a time. Its collectives are in
/// [`operations`](super#operations). Dropping it does what [`Communicator::close`] does, within ten seconds or its timeout,
/// whichever is less. While panicking, or where that fails, it is aborted as [`Aborter::abort`] does it, within ten seconds more, the
/// other ranks of this process included, so that dropping all of them waits once: twenty seconds at most.
///
/// ```
/// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
/// # use std::time::Duration;
/// # fn main() -> gpucomm::Result<()> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// # clique.spmd(|comm| {
/// # let stream = Stream::new(comm.device())?;
/// println!("rank {} of {} on {}", comm.rank(), comm.size(), comm.device());
/// comm.set_timeout(Duration::from_secs(30));
/// assert_eq!(comm.timeout(), Duration::from_secs(30));
/// let mut x = DeviceBuffer::from_slice(&stream, &[1.0f32; 1000])?;
/// comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
/// assert_eq!(x.to_vec(&stream)?, [comm.size() as f32; 1000]);
/// # Ok(())
/// # })?;
/// # Ok(())
/// # }
/// ```
pub struct Communicator {
    inner: Arc<Inner>,
}

impl Communicator {
    pub(crate) fn from_inner(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Wraps `ncclCommInitRankConfig`: rank `rank` of `size`, with default options.
    ///
    /// All ranks call it with the same id and size. It returns when all have come, or after the default timeout.
    ///
    /// ```
    /// # use gpucomm::{Communicator, Device, UniqueId};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (rank, size) = (0, 1);
    /// // Rank 0 makes the id, the others have got its bytes: from an `Exchange`, say.
    /// let id = UniqueId::new()?;
    /// // SAFETY: all ranks run this program, and so issue the same operations.
    /// let comm = unsafe { Communicator::init_rank(Device::new(0)?, size, &id, rank)? };
    /// assert_eq!((comm.rank(), comm.size()), (rank, size));
    /// comm.close(Duration::from_secs(10))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] where a rank does not come; [`Error::InvalidArgument`] where `rank` is not below `size`, or where the
    /// environment or a file of NCCL's sets `NCCL_COMM_BLOCKING` to 0, which would make a communicator whose operations fail, or
    /// `NCCL_CTA_POLICY` to the copy engines (2, or `ZERO`), for which ranks agree on too little; [`Error::LibraryTooOld`];
    /// [`Error::InvalidUsage`] within a host function, or where no thread can be started; [`Error::Aborted`] where the
    /// [`Clique::spmd`](super::Clique::spmd) that this is called in has failed; what NCCL says.
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
    ///   share their resources ([`Config::split_share`](super::Config::split_share)), any two ranks issue what they do with each other on
    ///   the communicator and on the parts in one order;
    /// - the same goes for [`Communicator::shrink`], which all call that are not left out, with the same ranks, and for what comes of a
    ///   [revoked](Communicator::revoke) communicator. All that call [`Communicator::recover`] do so with an exchange of these very ranks, in
    ///   which they have the same numbers, and what is promised here holds for what they get;
    /// - windows and registrations are dropped alike: between two allocations, registrations or calls of [`Communicator::reclaim`], which all
    ///   make in the same order too, each rank drops the same ones;
    /// - what is captured into a CUDA graph on one rank is captured on all;
    /// - all run the same version of NCCL, with the same settings of it.
    ///
    /// The ranks of one process need no such promise, because they compare: see [`Clique`](super::Clique).
    ///
    /// One thing more is not seen across processes, though it makes nothing undefined: when a process aborts its rank, operations of
    /// the others that wait for it may complete, without an error, on data that was never sent. See [`Aborter::abort`]. Ranks of one
    /// process are aborted together, also where each was made by this function.
    pub unsafe fn init_rank(device: Device, size: usize, id: &UniqueId, rank: usize) -> Result<Self> {
        let inner = init::one_rank("Communicator::init_rank", device, size, id, rank, &InitOptions::default());
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
    /// let options = InitOptions { timeout: Duration::from_secs(60), ..InitOptions::default() };
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
    pub unsafe fn init_rank_with(
        device: Device,
        size: usize,
        id: &UniqueId,
        rank: usize,
        options: &InitOptions,
    ) -> Result<Self> {
        init::one_rank("Communicator::init_rank_with", device, size, id, rank, options).map(Self::from_inner)
    }

    /// A rank that another library has started (`ncclCommInitRank` and its like), alone of its communicator in this process. It belongs to
    /// this crate from now on, which finalizes and destroys it, or aborts it.
    ///
    /// Its calls wait as long as the default timeout; see [`Communicator::set_timeout`]. [`Communicator::into_raw`] is the other way round.
    ///
    /// ```
    /// use gpucomm::{Communicator, Device, InPlace, ReduceOp, Result, Stream, sys};
    ///
    /// fn reduce(theirs: sys::ncclComm_t) -> Result<()> {
    ///     // SAFETY: their library has started it, uses it no more, and will not destroy it; all ranks go on like this one.
    ///     let comm = unsafe { Communicator::from_raw(theirs)? };
    ///     let stream = Stream::new(comm.device())?;
    ///     let mut x = comm.alloc_from(&stream, &[1f32; 1000])?;
    ///     comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)
    /// }
    /// # fn main() -> Result<()> {
    /// # let comm = gpucomm::Clique::init_all(&[Device::new(0)?])?.into_ranks().pop().expect("one rank");
    /// # reduce(comm.into_raw()?)
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for null, and where the environment says what [`Communicator::init_rank`] refuses, or
    /// `NCCL_COMM_SPLIT_SHARE_RESOURCES=1`;
    /// [`Error::LibraryTooOld`]; [`Error::InvalidUsage`] within a host function, or where no thread can be started; what NCCL says. It still
    /// belongs to the caller then. [`Error::Aborted`] where the [`Clique::spmd`](super::Clique::spmd) that this is called in has failed: it is
    /// aborted then.
    ///
    /// # Safety
    /// - `raw` is null or a communicator whose start has returned, with `blocking = 1`. Its operations are done, or those who wait for them
    ///   do so otherwise. Nobody else uses it any more, or destroys it; nothing is registered with it, as a window or otherwise.
    /// - It shares its resources with no other, and was configured with `splitShare = 0` and `shrinkShare = 0`, which NCCL hands on to its parts; it is no part of one that ends before it, nor has parts that go on
    ///   after it. What its configuration points to lives until it has ended.
    /// - The process has no other rank of the same communicator; for those there is [`Communicator::from_raw_all`].
    /// - All that [`Communicator::init_rank`] asks for, from its first operation here on, on all ranks.
    pub unsafe fn from_raw(raw: sys::ncclComm_t) -> Result<Self> {
        // SAFETY: as the caller promises.
        let mut all = unsafe { adopt::all("Communicator::from_raw", &[raw]) }?;
        all.pop().map(Self::from_inner).ok_or_else(|| init::nothing("Communicator::from_raw"))
    }

    /// As [`Communicator::from_raw`], for several ranks of one communicator: all that this process has.
    ///
    /// They end together, as those of a [`Clique`](super::Clique) do, but do not compare what they do.
    ///
    /// ```
    /// # use gpucomm::{Clique, Communicator, Device};
    /// # use gpucomm::sys;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// fn take(theirs: &[sys::ncclComm_t]) -> gpucomm::Result<Vec<Communicator>> {
    ///     // SAFETY: their library has started them, uses them no more, and will not destroy them; they are all ranks here.
    ///     unsafe { Communicator::from_raw_all(theirs) }
    /// }
    /// # drop((take(&[]), clique));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::from_raw`]; [`Error::InvalidArgument`] for one rank twice, and for ranks of communicators of different sizes.
    ///
    /// # Safety
    /// As [`Communicator::from_raw`], for each; and they are all ranks of one communicator that this process has.
    pub unsafe fn from_raw_all(raw: &[sys::ncclComm_t]) -> Result<Vec<Self>> {
        // SAFETY: as the caller promises.
        let all = unsafe { adopt::all("Communicator::from_raw_all", raw) }?;
        Ok(all.into_iter().map(Self::from_inner).collect())
    }

    /// This rank, below [`Communicator::size`].
    #[inline]
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// How many ranks there are.
    #[inline]
    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// The device of this rank.
    #[inline]
    pub fn device(&self) -> Device {
        self.inner.device
    }

    /// How long calls of this communicator wait: for room in the launch queue, for another thread's call, inside NCCL.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// assert_eq!(clique.rank(0).timeout(), gpucomm::default_timeout());
    /// # Ok(())
    /// # }
    /// ```
    pub fn timeout(&self) -> Duration {
        self.inner.timeout()
    }

    /// Sets how long calls of this communicator wait. At first it is the timeout that the start was given.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// for rank in clique.ranks() {
    ///     rank.set_timeout(Duration::from_secs(5));
    /// }
    /// assert_eq!(clique.rank(0).timeout(), Duration::from_secs(5));
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_timeout(&self, timeout: Duration) {
        self.inner.set_timeout(timeout);
    }

    /// How the communicator stands. What is not active any more refuses every call, and says since when and why.
    ///
    /// ```
    /// # use gpucomm::nccl::State;
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # let comm = clique.rank(0);
    /// match comm.state() {
    ///     State::Active => {}
    ///     // Another thread has ended it, or another rank: its error stands in what every call returns.
    ///     state => eprintln!("rank {} is {state:?}", comm.rank()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn state(&self) -> State {
        self.inner.state()
    }

    /// Whether calls are still possible: neither aborted nor failed.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let rank = clique.rank(0);
    /// rank.aborter().abort("it is over");
    /// assert!(!rank.is_active());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_active(&self) -> bool {
        self.inner.is_active()
    }

    /// Wraps `ncclCommGetAsyncError`: what has gone wrong in operations that were enqueued before.
    ///
    /// There is no need to call it: every wait for work of the communicator asks, a thread of this crate does now and then, and
    /// either aborts the communicator on an error.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// for rank in clique.ranks() {
    ///     rank.async_error()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What NCCL reports, or why the communicator has ended; [`Error::InvalidUsage`] within a host function of a stream.
    pub fn async_error(&self) -> Result<()> {
        outside_of_host_functions("async_error")?;
        self.inner.async_error().unwrap_or_else(|| Err(self.inner.dead("async_error")))
    }

    /// Wraps `ncclGetLastError`: a copy of the last message of NCCL in this process, which may be about another call.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// if let Some(message) = clique.rank(0).last_error() {
    ///     eprintln!("NCCL has said: {message}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn last_error(&self) -> Option<String> {
        check::last_error()
    }

    /// The `ncclComm_t`; `None` once the communicator has ended. [`Communicator::into_raw`] gives it away.
    ///
    /// What is done with it is not tracked: not which memory is in use, and not whether the ranks agree. Nor is it counted, so that the bound
    /// on what is on its way on a stream ends there. It must not be destroyed.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # use gpucomm::sys;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let mut count = 0;
    /// let raw = clique.rank(0).as_raw().expect("it is active");
    /// // SAFETY: the communicator lives, and the call has a place for its answer.
    /// let code = unsafe { sys::ncclCommCount(raw, &mut count) };
    /// assert_eq!((code, count as usize), (sys::ncclResult_t::ncclSuccess, clique.size()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_raw(&self) -> Option<sys::ncclComm_t> {
        let (_guard, handle) = self.inner.enter("as_raw").ok()?;
        Some(handle)
    }

    /// A handle by which any thread can abort this communicator.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let aborter = clique.rank(0).aborter();
    /// // To any thread, such as one that looks for a signal.
    /// let thread = std::thread::spawn(move || aborter.abort("the user has pressed a key"));
    /// println!("{:?}", thread.join().expect("no panic"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn aborter(&self) -> Aborter {
        Aborter::new(&self.inner)
    }

    /// Wraps `ncclCommAbort`: see [`Aborter::abort`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// for comm in clique.into_ranks() {
    ///     println!("{:?}", comm.abort("there is something better to do"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn abort(self, reason: &str) -> AbortOutcome {
        self.aborter().abort(reason)
    }

    /// Wraps `ncclCommFinalize` and `ncclCommDestroy`: waits for all work of this rank, and for NCCL to free it.
    ///
    /// NCCL frees the ranks of a process together, when the last of them ends, and then waits for everything on their devices. Where other
    /// communicators are active there, such as the one that this was split off from, a rank waits up to 100 ms for the others of its
    /// process to come here as well, and no longer than a second for NCCL, which goes on by itself: what holds it up may wait for this
    /// rank. Where others share its resources ([`Config::split_share`](super::Config::split_share)), NCCL frees it with the last of them,
    /// which is not waited for.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// std::thread::scope(|scope| {
    ///     // The ranks of a process end together.
    ///     let ranks: Vec<_> =
    ///         clique.into_ranks().into_iter().map(|comm| scope.spawn(|| comm.close(Duration::from_secs(10)))).collect();
    ///     ranks.into_iter().try_for_each(|rank| rank.join().expect("no panic"))
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] where that takes longer than `timeout`; [`Error::Aborted`] where it has ended before; why its work has failed; what
    /// NCCL says. The communicator is gone in any case: where it could not
    /// be closed it is aborted, and that waits up to ten seconds more for what may still write into memory, as every drop does.
    pub fn close(self, timeout: Duration) -> Result<()> {
        close_members(&[self], timeout)
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("device", &self.device())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        drop_members(std::slice::from_ref(self));
    }
}

/// The cause of an end that a failure elsewhere brings.
pub(crate) fn aborted(reason: String) -> Error {
    Error::Aborted { operation: "abort", reason }
}

fn inners<'a>(members: impl IntoIterator<Item = &'a Communicator>) -> Vec<Arc<Inner>> {
    members.into_iter().map(|member| Arc::clone(&member.inner)).collect()
}

/// Closes the communicators of `members`. Where that fails, they are aborted, and all ranks of this process with them; that
/// is not waited for.
pub(crate) fn close_members<'a>(members: impl IntoIterator<Item = &'a Communicator>, timeout: Duration) -> Result<()> {
    let members = inners(members);
    let closed = closing::close(&members, &Deadline::after(timeout));
    if let Err(error) = &closed {
        // Others may have revoked them meanwhile, and go on.
        let (revoked, members): (Vec<_>, Vec<_>) = members.into_iter().partition(|inner| inner.is_revoked());
        closing::end_revoked(&revoked, "close");
        let relatives: Vec<_> = members.iter().flat_map(|inner| inner.relatives()).collect();
        start_abort(&relatives, error);
    }
    closed
}

/// What dropping `members` does.
pub(crate) fn drop_members<'a>(members: impl IntoIterator<Item = &'a Communicator>) {
    closing::drop_all(&inners(members));
}

/// Ends the communicators of `members` and `others`, because of `reason`.
pub(crate) fn abort_members(members: &[Communicator], others: Vec<Arc<Inner>>, reason: String) -> AbortOutcome {
    let mut all = inners(members);
    all.extend(others);
    abort(&all, &aborted(reason), &Deadline::after(GRACE))
}

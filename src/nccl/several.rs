//! Several communicators at once: their starts and their ends.

use std::time::Duration;

use super::aborter::Aborter;
use super::communicator::Communicator;
use super::end::{aborted, inners, timeout_of};
use super::lifecycle::abort::{AbortOutcome, GRACE};
use super::lifecycle::{abort, close, root_cause, start};
use super::setup::environment;
use super::setup::init_options::InitOptions;
use super::setup::unique_id::UniqueId;
use crate::cuda::Device;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// Several ranks of one communicator.
impl Communicator {
    /// Wraps `ncclCommInitRankConfig`, once for each of `ranks`, in one group of NCCL: those ranks of a communicator of `size` that this process
    /// has, started by one thread, each on its device. The others come from other processes; where there are none,
    /// [`Clique`](super::Clique) needs no promise.
    ///
    /// As those that threads start one by one, they end together, and do not compare what they do. One thread that drives several puts their
    /// calls into one [`group`](super::group).
    ///
    /// ```
    /// # use gpucomm::nccl::InitOptions;
    /// # use gpucomm::{Communicator, Device, UniqueId};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (host, hosts, id) = (0, 1, UniqueId::new()?);
    /// // One process on each host.
    /// let devices = Device::all()?;
    /// let ranks: Vec<_> = devices.iter().enumerate().map(|(at, device)| (*device, host * devices.len() + at)).collect();
    /// let size = hosts * devices.len();
    /// // SAFETY: all processes run this program, on hosts of equally many devices, so all ranks come and issue the same operations.
    /// let comms = unsafe { Communicator::init_ranks(&ranks, size, &id, &InitOptions::default())? };
    /// assert_eq!(comms[0].rank(), host * devices.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::init_rank`]; [`Error::InvalidArgument`](crate::Error::InvalidArgument) where `ranks` is empty, or has a rank or a device twice.
    ///
    /// # Safety
    /// As [`Communicator::init_rank`], for each rank.
    #[doc(alias = "ncclCommInitRankConfig")]
    pub unsafe fn init_ranks(
        ranks: &[(Device, usize)],
        size: usize,
        id: &UniqueId,
        options: &InitOptions,
    ) -> Result<Vec<Self>> {
        let ranks = ranks.iter().map(|(device, rank)| (*rank, *device)).collect();
        environment::cannot_check("Communicator::init_ranks")?;
        let members = start::some_ranks("Communicator::init_ranks", ranks, size, id, options)?;
        Ok(members.into_iter().map(Self::from_inner).collect())
    }
}

/// Wraps `ncclCommFinalize` and `ncclCommDestroy`, on several communicators at the same time: [`Communicator::close`] for each, with one
/// deadline for all, the shortest of their [timeouts](Communicator::timeout), and an answer for each, in their order.
///
/// They may be ranks of different communicators, or of one. All begin to end before any is waited for: what one has on its way does not
/// keep the others from ending, and processes that have them in different orders do not wait for each other. Where one cannot be closed, it alone is aborted, with
/// its ranks in this process; the others end well.
///
/// ```
/// # use gpucomm::{Clique, Device, nccl};
/// # fn main() -> gpucomm::Result<()> {
/// # let clique = Clique::init_all(&Device::all()?[..4])?;
/// # let run = |world: gpucomm::Communicator| -> gpucomm::Result<()> {
/// // At the end of a program of 2 × 2 ranks.
/// let rank = world.rank();
/// let data = world.split(Some(rank % 2), rank)?.expect("a group");
/// let tensor = world.split(Some(rank / 2), rank)?.expect("a group");
/// // …
/// for (name, closed) in ["data", "tensor", "world"].iter().zip(nccl::close_all([data, tensor, world])) {
///     if let Err(error) = closed {
///         eprintln!("the {name} communicator of rank {rank}: {error}");
///     }
/// }
/// # Ok(())
/// # };
/// # std::thread::scope(|scope| {
/// #     let ranks: Vec<_> = clique.into_ranks().into_iter().map(|comm| scope.spawn(|| run(comm))).collect();
/// #     ranks.into_iter().try_for_each(|rank| rank.join().expect("no panic"))
/// # })
/// # }
/// ```
///
/// # Errors
/// Each as [`Communicator::close`]. All are gone in any case.
#[doc(alias("ncclCommFinalize", "ncclCommDestroy"))]
pub fn close_all(comms: impl IntoIterator<Item = Communicator>) -> Vec<Result<()>> {
    let comms: Vec<_> = comms.into_iter().collect();
    let timeout = timeout_of(&comms);
    close_all_timeout(comms, timeout)
}

/// As [`close_all`], with the given timeout.
///
/// ```
/// # use gpucomm::{Clique, Device, nccl};
/// # use std::time::Duration;
/// # fn main() -> gpucomm::Result<()> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// for closed in nccl::close_all_timeout(clique.into_ranks(), Duration::from_secs(10)) {
///     closed?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As there.
pub fn close_all_timeout(comms: impl IntoIterator<Item = Communicator>, timeout: Duration) -> Vec<Result<()>> {
    let comms: Vec<_> = comms.into_iter().collect();
    close::close_each(&inners(&comms), &Deadline::after(timeout))
}

/// Wraps `ncclCommAbort`, on several communicators at the same time: [`Aborter::abort`] for each, ten seconds for all, and an answer for each, in
/// their order.
///
/// They are given as `&Communicator`, or as [`Aborter`], by whatever thread. All are told before the first is stopped. One after the other, each
/// would wait for what the others have on its device, which may be what hangs; so where one of several communicators of a rank has failed, and
/// the others are to end as well, this is the way.
///
/// ```
/// # use gpucomm::nccl::{self, AbortOutcome};
/// # use gpucomm::{Clique, Device};
/// # fn main() -> gpucomm::Result<()> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// # let world = clique.rank(0);
/// # let part = clique.split(|rank| Some((0, rank)))?.remove(&0).expect("a part");
/// # let part = part.rank(0);
/// // A thread that looks after a rank has a handle of each of its communicators.
/// let aborters = [world.aborter(), part.aborter()];
/// let watch = std::thread::spawn(move || nccl::abort_all(aborters, "a rank hangs"));
/// let outcomes = watch.join().expect("no panic");
/// assert_eq!(outcomes, [AbortOutcome::Done; 2]);
/// assert!(!world.is_active() && !part.is_active());
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ncclCommAbort")]
pub fn abort_all<A: Into<Aborter>>(comms: impl IntoIterator<Item = A>, reason: &str) -> Vec<AbortOutcome> {
    abort_all_within(comms, &aborted(reason), &Deadline::after(GRACE))
}

/// As [`abort_all`], because of an error. Waits no longer than until this deadline.
pub(crate) fn abort_all_within<A: Into<Aborter>>(
    comms: impl IntoIterator<Item = A>,
    cause: &Error,
    deadline: &Deadline,
) -> Vec<AbortOutcome> {
    let members: Vec<_> = comms.into_iter().map(|comm| comm.into().inner()).collect();
    root_cause::begin(cause);
    abort::abort_each(&members, cause, deadline)
}

impl From<&Communicator> for Aborter {
    fn from(comm: &Communicator) -> Self {
        comm.aborter()
    }
}

impl From<&Aborter> for Aborter {
    fn from(aborter: &Aborter) -> Self {
        aborter.clone()
    }
}

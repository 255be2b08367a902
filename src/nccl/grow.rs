//! Communicators to which ranks are added.

use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread;

use super::children::grow;
use super::clique::Clique;
use super::communicator::Communicator;
use super::invitation::Invitation;
use super::lifecycle::abort::start_abort;
use super::lifecycle::scope::Scope;
use super::lifecycle::start::{self, check_unchecked};
use super::lifecycle::start_over_exchange::{self, Threads};
use super::rank::helper::{Helper, cannot_start};
use super::setup::environment;
use super::setup::init_options::InitOptions;
use crate::cuda::Device;
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::name::Name;
use crate::shared_deadline::SharedDeadline;
use crate::version;

impl Communicator {
    /// Wraps `ncclCommGetUniqueId` (NCCL 2.29.2): invitations for `more` ranks, in the order of their numbers, which follow those that there
    /// are. One rank calls it, before it calls [`Communicator::grow`], by which all ranks wait for those that are invited.
    ///
    /// Until then nothing else can be made of the communicator, and nobody else invites, also where the invitations are dropped: NCCL takes none
    /// back. Who has no use for them any more [recovers](Communicator::recover), or closes it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with an older NCCL; [`Error::InvalidArgument`] for no ranks; [`Error::InvalidUsage`] where an invitation is open,
    /// where it was split, and [shares its resources](super::Config::with_split_share) with its parts, where `NCCL_COMM_ID` is set, in a group, and
    /// within a host function; why the communicator has ended, or is not active; what NCCL says:
    /// it is aborted then.
    ///
    /// # Examples
    /// Threads of one process; the new rank is told nothing else:
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Clique, Device, Error};
    ///
    /// # if Device::count().is_ok_and(|count| count < 2) { return Ok(()) }
    /// let (old, new) = (Device::new(0)?, Device::new(1)?);
    /// let clique = Clique::init_all(&[old])?;
    /// let comm = clique.rank(0);
    /// let mut invitations = match comm.invite(1) {
    ///     Ok(invitations) => invitations,
    ///     Err(Error::Unsupported { .. }) => return Ok(()),
    ///     Err(error) => return Err(error),
    /// };
    /// std::thread::scope(|scope| {
    ///     let invitation = invitations.pop().expect("one");
    ///     let newcomer = scope.spawn(move || invitation.accept(new));
    ///     let grown = comm.grow(1)?;
    ///     assert_eq!((grown.rank(), grown.size()), (0, 2));
    ///     assert_eq!(newcomer.join().expect("no panic")?.rank(), 1);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    #[doc(alias = "ncclCommGetUniqueId")]
    pub fn invite(&self, more: usize) -> Result<Vec<Invitation>> {
        let invited = grow::invite("invite", self.inner(), more)?;
        Ok(Invitation::all(&invited, self.size()))
    }

    /// Wraps `ncclCommGrow` (NCCL 2.29.2): a communicator of all ranks, with their numbers, and of `more` that one of them has
    /// [invited](Communicator::invite). All ranks call it, with as many.
    ///
    /// It waits until what this rank has enqueued is done, then for the others and for those that are invited. What comes of it has the
    /// options and the timeout of this communicator, lives by itself, and goes on when this one is dropped. In a clique all its ranks
    /// compare, the new ones too; across processes the promise of [`Communicator::init_rank`] goes for it, and for what the new ranks do.
    ///
    /// This communicator is as it was. NCCL says that it should be closed, to give its resources back.
    ///
    /// Where a new rank never comes, NCCL (2.30.7) lets go of nothing: the timeout is told and this communicator is aborted, but its memory
    /// and a thread stay until the process ends.
    ///
    /// # Errors
    /// [`Error::Timeout`] where a rank does not come within [`Communicator::timeout`]: in a clique, where it is one of those that there are,
    /// nothing has happened; else this communicator is aborted. [`Error::InvalidArgument`] where another number of ranks was invited than
    /// `more`, or in a clique none, which ends that; [`Error::Disagreement`] where ranks of a clique do something else, or one has left; what NCCL says: the
    /// communicator is aborted then, with all its ranks in this process. [`Error::InvalidUsage`] where it shares its resources with parts, as
    /// for [`Communicator::invite`]. [`Error::Unsupported`] with an older NCCL.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Clique, Device, InPlace, ReduceOp, Stream};
    ///
    /// # if Device::count().is_ok_and(|count| count < 3) { return Ok(()) }
    /// let devices = Device::all()?;
    /// let clique = Clique::init_all(&devices[..2])?;
    /// let Ok(mut invitations) = clique.rank(0).invite(1) else { return Ok(()) };
    /// let sum = |comm: gpucomm::Communicator| {
    ///     let stream = Stream::new(comm.device())?;
    ///     comm.all_reduce_scalar(1u32, ReduceOp::Sum, &stream)
    /// };
    /// std::thread::scope(|scope| {
    ///     let (invitation, device) = (invitations.pop().expect("one"), devices[2]);
    ///     scope.spawn(move || sum(invitation.accept(device)?));
    ///     let sums = clique.spmd(|comm| sum(comm.grow(1)?))?;
    ///     assert_eq!(sums, [3, 3]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    #[doc(alias = "ncclCommGrow")]
    pub fn grow(&self, more: usize) -> Result<Self> {
        self.grow_on("grow", more, None)
    }

    /// Grows, with `helper` as the thread of the grown communicator if there is one already.
    fn grow_on(&self, operation: &'static str, more: usize, helper: Option<Helper>) -> Result<Self> {
        let grown = grow::grow(operation, &[self.inner()], more, helper)?;
        grown.into_iter().next().map(Self::from_inner).ok_or_else(|| start::nothing(operation))
    }

    /// Wraps `ncclCommGrow`, of a new rank: comes into the communicator of those that have sent this invitation, by
    /// [`Invitation::into_bytes`]. It has the [name](Communicator::name) that they give it, if `options` have none.
    ///
    /// # Errors
    /// [`Error::Timeout`] where not all come within the timeout of `options`; otherwise as [`Communicator::init_rank_with`].
    ///
    /// # Safety
    /// As [`Communicator::init_rank`], for the communicator that comes of it: the other ranks go on like this one. `options` have the
    /// configuration of the others.
    ///
    /// # Examples
    /// ```
    /// use gpucomm::nccl::{InitOptions, Invitation};
    /// use gpucomm::{Communicator, Device, Result};
    ///
    /// /// What another process has sent.
    /// fn come(bytes: [u8; Invitation::BYTES]) -> Result<Communicator> {
    ///     let invitation = Invitation::from_bytes(bytes);
    ///     // SAFETY: all ranks run this program, and so issue the same operations.
    ///     unsafe { Communicator::join(Device::new(0)?, invitation, &InitOptions::default()) }
    /// }
    /// # let _ = come;
    /// ```
    #[doc(alias = "ncclCommGrow")]
    pub unsafe fn join(device: Device, invitation: Invitation, options: &InitOptions) -> Result<Self> {
        invitation.come("Communicator::join", device, Some(options)).map(Self::from_inner)
    }

    /// [Invites](Communicator::invite) and [grows](Communicator::grow) over an exchange of all ranks, the new ones too, which call
    /// [`Communicator::join_over`]: those that there are have the same numbers in both, and rank 0 invites the others. What grows from a
    /// [checked](Communicator::is_checked) communicator is checked.
    ///
    /// # Errors
    /// As [`Communicator::invite`] and [`Communicator::grow`]; [`Error::InvalidUsage`] for a rank of a clique; [`Error::InvalidArgument`] where
    /// `exchange` has no more ranks than there are, or this rank has another number there; [`Error::Disagreement`] on all ranks if the first of them do
    /// not call this, for communicators of the same size, or the others do not join. Where a rank cannot grow, nothing has happened: it gets its
    /// own error, and the others at once an [`Error::Exchange`] that says why. Where the exchange knows that a rank has ended which had not grown or
    /// joined, [`Error::Departed`] soon after, or [`Error::Aborted`] if this communicator was growing already, which ends it. Whatever ends
    /// this communicator while the others are missing ends the call at once, here and for them. Those of
    /// [`Exchange::all_gather`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::exchange::{Exchange, Threads};
    /// use gpucomm::nccl::InitOptions;
    /// use gpucomm::{Communicator, Device, Error, Stream, UniqueId};
    ///
    /// # if Device::count().is_ok_and(|count| count < 2) { return Ok(()) }
    /// fn one(rank: usize, exchange: &Exchange) -> gpucomm::Result<()> {
    ///     let (device, options) = (Device::new(rank)?, InitOptions::default());
    ///     // SAFETY: all ranks run this program, and so issue the same operations.
    ///     let comm = unsafe {
    ///         match rank {
    ///             0 => Communicator::init_rank(device, 1, &UniqueId::new()?, 0)?.grow_over(exchange)?,
    ///             _ => Communicator::join_over(device, exchange, &options)?,
    ///         }
    ///     };
    ///     comm.barrier(&Stream::new(device)?)
    /// }
    /// # if gpucomm::nccl::version()? < gpucomm::Version::new(2, 29, 2) { return Ok(()) }
    /// let place = Threads::new(2);
    /// std::thread::scope(|scope| {
    ///     let ranks = [0, 1].map(|rank| {
    ///         let store = place.store(rank).unwrap();
    ///         scope.spawn(move || one(rank, &Exchange::join(store)?))
    ///     });
    ///     ranks.into_iter().try_for_each(|rank| rank.join().expect("no panic"))
    /// })
    /// # }
    /// ```
    pub fn grow_over(&self, exchange: &Exchange) -> Result<Self> {
        const OPERATION: &str = "grow_over";
        // Whatever is wrong here, the other ranks learn of it.
        let own = Comes::Grows { size: self.size() as u64, is_checked: self.is_checked() };
        let ready = self.ready_to_grow(OPERATION, exchange);
        // Whatever ends this communicator ends the wait for the others.
        let waiting = Arc::clone(self.inner());
        let unless_ended = exchange.unless(move || {
            let closed = || waiting.validation.over_exchange()?.closed_by_another(OPERATION);
            waiting.refusal(OPERATION).or_else(closed)
        });
        let (more, threads) = unless_ended.meet_ready(OPERATION, GROWING, ready)?;
        let ((), gathered) = exchange.gather_ready(OPERATION, Ok(((), own.encode())))?;
        let is_checked = agree(OPERATION, &gathered)?;
        let name = exchange.share(OPERATION, || {
            let invitations = self.invite(more)?.into_iter().map(Invitation::into_bytes);
            Ok(invitations.collect::<Result<Vec<_>>>()?.concat())
        })?;
        let listener = threads.listener(exchange, &name, is_checked.then(|| self.inner().name.grown()))?;
        let Threads { helper, departures, .. } = threads;
        let grow = || self.grow_on(OPERATION, more, Some(helper));
        let grown = start_over_exchange::unless_gone(OPERATION, exchange, (departures, &name), self.inner(), grow)?;
        listener.into_iter().for_each(|listener| listener.listen(grown.inner()));
        Ok(grown)
    }

    /// Checks whether this rank can grow over an exchange. Returns by how many ranks, and the
    /// threads that it needs.
    fn ready_to_grow(&self, operation: &'static str, exchange: &Exchange) -> Result<(usize, Threads)> {
        if self.inner().validation.in_process().is_some() {
            let reason = "a rank of a clique grows with others of its process: see invite".to_owned();
            return Err(Error::InvalidUsage { operation, reason });
        }
        if exchange.size() <= self.size() {
            let expected = format!("more than {} ranks", self.size());
            return Err(Error::argument(operation, "size of the exchange", expected, exchange.size()));
        }
        if exchange.rank() != self.rank() {
            return Err(Error::argument(operation, "rank in the exchange", self.rank(), exchange.rank()));
        }
        let more = exchange.size() - self.size();
        grow::ready(operation, self.inner(), more)?;
        Ok((more, Threads::start(operation, self.device(), self.is_checked())?))
    }

    /// As [`Communicator::join`], over an exchange of all ranks: see [`Communicator::grow_over`], where there is an example.
    ///
    /// # Errors
    /// As [`Communicator::join`]; [`Error::Disagreement`] on all ranks if one of those that there are calls this instead of
    /// [`grow_over`](Self::grow_over); [`Error::Exchange`] at once if another rank cannot go on, and [`Error::Departed`] soon after the exchange knows that
    /// one has ended before it has joined; those of [`Exchange::all_gather`].
    ///
    /// # Safety
    /// As [`Communicator::join`].
    pub unsafe fn join_over(device: Device, exchange: &Exchange, options: &InitOptions) -> Result<Self> {
        const OPERATION: &str = "Communicator::join_over";
        let ready = check_unchecked(OPERATION, options)
            .and_then(|()| version::needs(OPERATION, grow::FIRST))
            .and_then(|()| Threads::start(OPERATION, device, true));
        let threads = exchange.meet_ready(OPERATION, GROWING, ready)?;
        let ((), gathered) = exchange.gather_ready(OPERATION, Ok(((), Comes::Joins.encode())))?;
        let is_checked = agree(OPERATION, &gathered)?;
        let bytes = exchange.share(OPERATION, || Err(Error::argument(OPERATION, "rank", "one that is invited", 0)))?;
        let (all, _) = bytes.as_chunks::<{ Invitation::BYTES }>();
        let own = all.iter().map(|bytes| Invitation::from_bytes(*bytes)).find(|one| one.rank() == exchange.rank());
        let nobody = || Error::argument(OPERATION, "rank", "one that is invited", exchange.rank());
        let called = own.as_ref().map_or_else(Name::default, |own| own.name_with(Some(options)).clone());
        let listener = threads.listener(exchange, &bytes, is_checked.then_some(called))?;
        let Threads { helper, departures, .. } = threads;
        let begin = || own.ok_or_else(nobody)?.begin(OPERATION, device, Some(options), Some(helper));
        let inner = start_over_exchange::wait(OPERATION, exchange, (departures, &bytes), begin)?;
        listener.into_iter().for_each(|listener| listener.listen(&inner));
        Ok(Self::from_inner(inner))
    }
}

/// What the ranks of an exchange come to before they grow over it.
const GROWING: &str = "growing a communicator";

/// What a rank comes to, which it publishes before it grows over an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comes {
    Joins,
    Grows { size: u64, is_checked: bool },
}

impl Comes {
    fn encode(self) -> Vec<u8> {
        match self {
            Self::Joins => Vec::new(),
            Self::Grows { size, is_checked } => [&size.to_le_bytes()[..], &[u8::from(is_checked)]].concat(),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let Some((size, is_checked)) = bytes.split_first_chunk() else {
            return bytes.is_empty().then_some(Self::Joins);
        };
        let [is_checked] = <[u8; 1]>::try_from(is_checked).ok()?;
        Some(Self::Grows { size: u64::from_le_bytes(*size), is_checked: is_checked != 0 })
    }

    fn describe(self) -> String {
        match self {
            Self::Joins => "join_over".to_owned(),
            Self::Grows { size, is_checked } => {
                format!("grow_over of a {}communicator of {size} ranks", if is_checked { "checked " } else { "" })
            }
        }
    }
}

/// Checks that the first ranks of an exchange grow and all others join them. All ranks get the same
/// result: whether the communicator is checked.
fn agree(operation: &'static str, gathered: &[Vec<u8>]) -> Result<bool> {
    let (mut first, mut checked) = (None, false);
    for (rank, bytes) in gathered.iter().enumerate() {
        let Some(comes) = Comes::decode(bytes) else {
            let reason = format!("expected what it comes to, got {} bytes that are something else", bytes.len());
            return Err(Error::Exchange { operation, key: format!("rank {rank}"), reason });
        };
        let expected = match *first.get_or_insert(comes) {
            Comes::Joins => None,
            grows @ Comes::Grows { size, is_checked } => {
                checked = is_checked;
                Some(if (rank as u64) < size { grows } else { Comes::Joins })
            }
        };
        if expected != Some(comes) {
            let invites = || "grow_over, as rank 0 invites the others".to_owned();
            return Err(Error::Disagreement {
                operation,
                rank,
                peer: usize::from(rank == 0),
                expected: expected.map_or_else(invites, Comes::describe),
                got: comes.describe(),
                departed: false,
                in_part: false,
            });
        }
    }
    Ok(checked)
}

impl Clique {
    /// Wraps `ncclCommGetUniqueId` and `ncclCommGrow`, on all ranks: a clique with ranks on these devices more, in this order behind the others.
    /// See [`Communicator::grow`].
    ///
    /// # Errors
    /// As [`Communicator::invite`] and [`Communicator::grow`]; [`Error::Timeout`] where what was enqueued is not done, and nothing has happened;
    /// [`Error::InvalidArgument`] where there is no device, or one twice, or one that has a rank already; [`Error::InvalidUsage`] where no thread
    /// can be started.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Clique, Device, Error, Stream};
    ///
    /// let devices = Device::all()?;
    /// # if devices.len() < 2 { return Ok(()) }
    /// let clique = Clique::init_all(&devices[..1])?;
    /// let clique = match clique.grow(&devices[1..]) {
    ///     Ok(grown) => grown,
    ///     Err(Error::Unsupported { .. }) => return Ok(()),
    ///     Err(error) => return Err(error),
    /// };
    /// assert_eq!(clique.size(), devices.len());
    /// clique.spmd(|comm| comm.barrier(&Stream::new(comm.device())?))?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("ncclCommGetUniqueId", "ncclCommGrow"))]
    pub fn grow(&self, devices: &[Device]) -> Result<Self> {
        const OPERATION: &str = "Clique::grow";
        let wrong = |expected: &str, got: &dyn fmt::Display| Err(Error::argument(OPERATION, "devices", expected, got));
        if devices.is_empty() {
            return wrong("at least one device", &"none");
        }
        environment::check_devices(OPERATION, "devices", devices)?;
        for device in devices.iter().filter(|_| !environment::ranks_share_devices()) {
            if let Some(rank) = self.ranks().iter().find(|comm| comm.device() == *device) {
                return wrong("other devices", &format_args!("{device}, which rank {} has", rank.rank()));
            }
        }
        let Some(first) = self.ranks().first() else { return wrong("a clique of some ranks", &"none") };
        let members: Vec<_> = self.ranks().iter().map(Communicator::inner).collect();
        let _call = SharedDeadline::begin();
        grow::approach(OPERATION, &members)?;
        // Those that come hear of it where the others fail: nobody else would tell them.
        let coming = Scope::new();
        let (grown, came) = thread::scope(|scope| {
            // The threads are there before anybody is invited.
            let mut threads = Vec::with_capacity(devices.len());
            for &device in devices {
                let (sender, receiver) = mpsc::channel::<Invitation>();
                let coming = &coming;
                let come = move || {
                    let _joined = coming.join();
                    receiver.recv().ok().map(|invitation| invitation.come(OPERATION, device, None))
                };
                let thread = thread::Builder::new().spawn_scoped(scope, come);
                threads.push((sender, thread.map_err(|error| cannot_start(OPERATION, &error))?));
            }
            let invited = grow::invite(OPERATION, first.inner(), devices.len())?;
            for (invitation, (sender, _)) in Invitation::all(&invited, self.size()).into_iter().zip(&threads) {
                let _ = sender.send(invitation);
            }
            let grown = grow::grow(OPERATION, &members, devices.len(), None);
            if let Err(error) = &grown {
                coming.fail(&error.clone().into());
            }
            let came: Vec<_> = threads.into_iter().filter_map(|(_, thread)| thread.join().ok().flatten()).collect();
            Ok::<_, Error>((grown, came))
        })?;
        let mut failed = None;
        let mut all = grown.unwrap_or_else(|error| {
            failed = Some(error);
            Vec::new()
        });
        for one in came {
            match one {
                Ok(inner) => all.push(inner),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            None => Ok(Self::of(all)),
            Some(error) => {
                start_abort(&all, &error);
                Err(error)
            }
        }
    }
}

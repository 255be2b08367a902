//! Communicators that were stopped, and those that are made of them.

#[cfg(nccl_ge_2_27)]
use super::children::regroup::shrink;
#[cfg(nccl_ge_2_28_7)]
use super::children::regroup::split_revoked;
#[cfg(nccl_ge_2_28_7)]
use super::children::split::Ask;
#[cfg(nccl_ge_2_27)]
use super::clique::Clique;
use super::communicator::Communicator;
#[cfg(nccl_ge_2_28_7)]
use super::lifecycle::revoke;
#[cfg(nccl_ge_2_27)]
use super::setup::config::Config;
#[cfg(nccl_ge_2_27)]
use crate::error::Result;

/// A communicator that was [revoked](Communicator::revoke): what can be done with it, which is to make others of it.
///
/// What comes of it lives by itself: it goes on when the revoked one is dropped, and shares nothing with it.
#[derive(Debug, Clone, Copy)]
pub struct Revoked<'a>(pub(super) &'a Communicator);

#[cfg(nccl_ge_2_28_7)]
impl Communicator {
    /// Wraps `ncclCommRevoke` (NCCL 2.28.7): stops the communicator, with all ranks of this process, without ending it.
    ///
    /// What was under way, or waits for a rank that does not come, ends without a result: who waits for it, for its buffers, or makes another
    /// call, gets [`Error::Revoked`](crate::Error::Revoked) with this `reason`. It returns when the devices have left the communicator. Where it was
    /// revoked before, by another rank of this process too, it waits for that, and the first reason stays.
    ///
    /// Each process revokes its own ranks. NCCL waits there for those that it has connections with on the same machine, until these revoke as
    /// well, end, or die: so let every rank revoke that is there.
    ///
    /// NCCL does not leave a [grow](Communicator::grow) after a revoke. If a rank is still inside one a second later, the communicator is
    /// aborted.
    ///
    /// What was split off from it goes on. Windows and registrations stay until it is dropped, or closed, which aborts it then.
    /// Its graphs end. If NCCL may have registered memory for them, it first waits two seconds, in which NCCL learns of that.
    ///
    /// # Errors
    /// [`Error::Timeout`](crate::Error::Timeout) where it has not stopped within [`Communicator::timeout`]: it goes on stopping, and can be
    /// dropped. [`Error::InvalidUsage`](crate::Error::InvalidUsage) where it [shares its resources](super::Config::with_split_share), as all would be stopped that do, and within a
    /// host function. Why it has ended.
    ///
    /// # Examples
    /// The last rank is lost; the others go on without it:
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
    ///
    /// # if Device::count().is_ok_and(|count| count < 3) { return Ok(()) }
    /// let clique = Clique::init_all(&Device::all()?[..3])?;
    /// let sums = clique.spmd(|comm| {
    ///     let lost = comm.size() - 1;
    ///     if comm.rank() == lost {
    ///         return Ok(Vec::new());
    ///     }
    ///     let rest = comm.revoke("the last rank is lost")?.shrink(&[lost])?;
    ///     let stream = Stream::new(rest.device())?;
    ///     let mut x = DeviceBuffer::from_slice(&stream, &[1f32; 4])?;
    ///     rest.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    ///     x.to_vec(&stream)
    /// })?;
    /// assert_eq!(sums, [vec![2.0; 4], vec![2.0; 4], vec![]]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommRevoke")]
    pub fn revoke(&self, reason: &str) -> Result<Revoked<'_>> {
        revoke::revoke("Communicator::revoke", self.inner(), reason)?;
        Ok(Revoked(self))
    }
}

impl Communicator {
    /// What can be done with the communicator, where it was revoked and has stopped.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::{Clique, Device};
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// assert!(clique.rank(0).revoked().is_none());
    /// clique.revoke("to be divided")?;
    /// assert!(clique.rank(0).revoked().is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn revoked(&self) -> Option<Revoked<'_>> {
        (self.inner().is_revoked() && self.inner().has_stopped()).then_some(Revoked(self))
    }
}

#[cfg(nccl_ge_2_28_7)]
impl Revoked<'_> {
    /// Wraps `ncclCommShrink`: a communicator of all ranks but those in `without`, which do not call this, and may be dead. The others, all of
    /// them, call it with the same ranks. See [`Communicator::shrink`].
    ///
    /// Where a rank of another process comes, and hangs then, this ends at its deadline, but NCCL cannot be woken a second time: what it has
    /// for both communicators stays until the process ends. [`Communicator::recover`] asks over an exchange who is there.
    ///
    /// # Errors
    /// As [`Communicator::shrink`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::{Clique, Device};
    /// let comms = Clique::init_all(&Device::all()?)?.into_ranks();
    /// # let lost = comms.len() - 1;
    /// # if lost == 0 { return Ok(()) }
    /// std::thread::scope(|scope| {
    ///     let left = comms.iter().filter(|comm| comm.rank() != lost);
    ///     let left: Vec<_> = left.map(|comm| scope.spawn(move || comm.revoke("one is lost")?.shrink(&[lost]))).collect();
    ///     left.into_iter().try_for_each(|thread| {
    ///         assert_eq!(thread.join().expect("no panic")?.size(), lost);
    ///         Ok(())
    ///     })
    /// })
    /// # }
    /// ```
    #[doc(alias = "ncclCommShrink")]
    pub fn shrink(&self, without: &[usize]) -> Result<Communicator> {
        shrink_of("Revoked::shrink", self.0, without, None)
    }

    /// Wraps `ncclCommSplit`: as [`Communicator::split`], of a communicator that was revoked. All ranks call it.
    ///
    /// # Errors
    /// As [`Communicator::split`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::{Clique, Device};
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// let sizes = clique.spmd(|comm| {
    ///     let revoked = comm.revoke("to be divided")?;
    ///     let part = revoked.split(Some(comm.rank() % 2), comm.rank())?.expect("a part");
    ///     Ok(part.size())
    /// })?;
    /// assert_eq!(sizes[0], clique.size().div_ceil(2));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommSplit")]
    pub fn split(&self, color: Option<usize>, key: usize) -> Result<Option<Communicator>> {
        let parts = split_revoked("Revoked::split", &[self.0.inner()], &[Ask { color, key, config: None }])?;
        Ok(parts.into_iter().flatten().next().map(Communicator::from_inner))
    }
}

#[cfg(nccl_ge_2_27)]
pub(super) fn shrink_of(
    operation: &'static str,
    comm: &Communicator,
    without: &[usize],
    config: Option<&Config>,
) -> Result<Communicator> {
    let rest = shrink(operation, &[comm.inner()], without, config)?;
    let rest = rest.into_iter().flatten().next().map(Communicator::from_inner);
    rest.ok_or_else(|| super::lifecycle::start::nothing(operation))
}

#[cfg(nccl_ge_2_27)]
impl Communicator {
    /// Wraps `ncclCommShrink` (NCCL 2.27): a communicator of all ranks but those in `without`, in the order that they have here, numbered anew.
    ///
    /// All other ranks call it, with the same ranks in whatever order; those that are left out do not. It waits until what this rank has
    /// enqueued is done, then for the others. Of what hangs, as where a rank is lost, nothing is done: [revoke](Communicator::revoke) the
    /// communicator before, and shrink what that returns.
    ///
    /// What comes of it lives by itself: it shares nothing with this communicator, has its options and its timeout, and goes on when this one
    /// is dropped, aborted or fails. In a clique its ranks are one as well, and go on comparing; the promise of [`Communicator::init_rank`] goes for what is left too.
    /// This communicator is as it was, and can be shrunk again.
    ///
    /// # Errors
    /// [`Error::Timeout`](crate::Error::Timeout) where a rank does not come, or what was enqueued is not done, within [`Communicator::timeout`]: in a clique,
    /// and where ranks are [checked](Communicator::is_checked), nothing has happened then, unless their store does not say so in time: that ends the
    /// communicator. [`Error::Disagreement`](crate::Error::Disagreement) where such ranks leave out other ranks, or one has left; what NCCL says: the communicator is aborted then, with all its ranks in this process. [`Error::InvalidArgument`](crate::Error::InvalidArgument) where `without` has no rank, one
    /// twice, this one, or one that there is not. [`Error::InvalidUsage`](crate::Error::InvalidUsage) where [`Config::with_shrink_share`](super::Config::with_shrink_share) is set, and it was not revoked.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Clique, Device};
    ///
    /// # if Device::count().is_ok_and(|count| count < 3) { return Ok(()) }
    /// let clique = Clique::init_all(&Device::all()?[..3])?;
    /// let sizes = clique.spmd(|comm| match comm.rank() {
    ///     // It is taken out of service.
    ///     1 => Ok(0),
    ///     _ => Ok(comm.shrink(&[1])?.size()),
    /// })?;
    /// assert_eq!(sizes, [2, 0, 2]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommShrink")]
    pub fn shrink(&self, without: &[usize]) -> Result<Self> {
        self.inner().refusal("shrink").map_or(Ok(()), Err)?;
        shrink_of("shrink", self, without, None)
    }
}

#[cfg(nccl_ge_2_27)]
impl Clique {
    /// Wraps `ncclCommShrink`, on all ranks but those in `without`, for one thread that drives them all: a clique of those that are left. See
    /// [`Communicator::shrink`]; the clique may have been [revoked](Clique::revoke).
    ///
    /// # Errors
    /// As [`Communicator::shrink`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::{Clique, Device};
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// # if clique.size() < 2 { return Ok(()) }
    /// let rest = clique.shrink(&[0])?;
    /// assert_eq!(rest.size(), clique.size() - 1);
    /// assert_eq!(rest.rank(0).device(), clique.rank(1).device());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommShrink")]
    pub fn shrink(&self, without: &[usize]) -> Result<Self> {
        self.shrunk("Clique::shrink", without, None)
    }

    pub(super) fn shrunk(&self, operation: &'static str, without: &[usize], config: Option<&Config>) -> Result<Self> {
        let left = self.ranks().iter().filter(|comm| !without.contains(&comm.rank()));
        let members: Vec<_> = left.map(Communicator::inner).collect();
        if members.is_empty() {
            let expected = format!("fewer than all of the {} ranks", self.size());
            return Err(crate::Error::argument(operation, "without", expected, format_args!("{without:?}")));
        }
        // A clique that was revoked may be shrunk, one that is suspended stays as it is.
        let refused = members.iter().filter(|inner| inner.is_suspended()).find_map(|inner| inner.refusal(operation));
        refused.map_or(Ok(()), Err)?;
        let rest = shrink(operation, &members, without, config)?;
        Ok(Self::of(rest.into_iter().flatten().collect()))
    }
}

#[cfg(nccl_ge_2_28_7)]
impl Clique {
    /// Wraps `ncclCommRevoke`, on all ranks: what was under way has no result, and [`Clique::shrink`] makes a clique of some of them. See
    /// [`Communicator::revoke`].
    ///
    /// # Errors
    /// As [`Communicator::revoke`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::{Clique, Device, Error, Stream};
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// clique.revoke("a device gets hot")?;
    /// let refused = clique.spmd(|comm| comm.barrier(&Stream::new(comm.device())?));
    /// assert!(matches!(refused, Err(Error::Revoked { .. })));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommRevoke")]
    pub fn revoke(&self, reason: &str) -> Result<()> {
        self.ranks().first().map_or(Ok(()), |first| revoke::revoke("Clique::revoke", first.inner(), reason))
    }
}

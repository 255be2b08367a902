//! Communicators for other libraries, and from them.

use super::communicator::Communicator;
use super::lifecycle::{handover, start};
use crate::deadline::Deadline;
use crate::error::Result;
use crate::sys;

impl Communicator {
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
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for null, and where the environment says what [`Communicator::init_rank`] refuses, or
    /// `NCCL_COMM_SPLIT_SHARE_RESOURCES=1`;
    /// [`Error::LibraryTooOld`](crate::Error::LibraryTooOld); [`Error::InvalidUsage`](crate::Error::InvalidUsage) within a host function, or where no thread can be started; what NCCL says. It still
    /// belongs to the caller then. [`Error::Aborted`](crate::Error::Aborted) where the [`Clique::spmd`](super::Clique::spmd) that this is called in has failed: it is
    /// aborted then.
    ///
    /// # Safety
    /// - `raw` is null or a communicator whose start has returned, with `blocking = 1`. Its operations are done, or those who wait for them
    ///   do so otherwise. Nobody else uses it any more, or destroys it; nothing is registered with it, as a window or otherwise.
    /// - No graph has operations of it. It has `graphUsageMode = 2`, which NCCL takes where nothing is said, or becomes no part of any graph.
    /// - It shares its resources with no other, and was configured with `splitShare = 0` and `shrinkShare = 0`, which NCCL hands on to its parts; it is no part of one that ends before it, nor has parts that go on
    ///   after it. What its configuration points to lives until it has ended.
    /// - The process has no other rank of the same communicator; for those there is [`Communicator::from_raw_all`].
    /// - All that [`Communicator::init_rank`] asks for, from its first operation here on, on all ranks.
    pub unsafe fn from_raw(raw: sys::ncclComm_t) -> Result<Self> {
        // SAFETY: as the caller promises.
        let mut all = unsafe { handover::take_over("Communicator::from_raw", &[raw]) }?;
        all.pop().map(Self::from_inner).ok_or_else(|| start::nothing("Communicator::from_raw"))
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
    /// As [`Communicator::from_raw`]; [`Error::InvalidArgument`](crate::Error::InvalidArgument) for one rank twice, and for ranks of communicators of different sizes.
    ///
    /// # Safety
    /// As [`Communicator::from_raw`], for each; and they are all ranks of one communicator that this process has.
    pub unsafe fn from_raw_all(raw: &[sys::ncclComm_t]) -> Result<Vec<Self>> {
        // SAFETY: as the caller promises.
        let all = unsafe { handover::take_over("Communicator::from_raw_all", raw) }?;
        Ok(all.into_iter().map(Self::from_inner).collect())
    }

    /// The `ncclComm_t`, which belongs to the caller from now on: who has it uses it, and destroys it (`ncclCommDestroy`), or aborts it.
    /// [`Communicator::from_raw`] is the other way round, and [`Communicator::as_raw`] lends it.
    ///
    /// It waits until the work of this rank is done, no longer than [`Communicator::timeout`]. To this crate the communicator is closed then:
    /// aborters do nothing, other ranks of a [`Clique`](super::Clique) that wait for this one are told that it has left, and an abort of
    /// those does not end it. What was split off from it goes on by itself, and may be closed before it and after. Give all ranks away
    /// that one process has, or none: NCCL frees them together. Memory of graphs that [stays for a while](Communicator::reclaim) stays for good.
    ///
    /// ```
    /// # use gpucomm::{Clique, Communicator, Device, InPlace, ReduceOp, Stream, sys};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let comm = Clique::init_all(&[Device::new(0)?])?.into_ranks().pop().expect("one rank");
    /// // Another library has it, and gives it back.
    /// let raw: sys::ncclComm_t = comm.into_raw()?;
    /// // SAFETY: it was not destroyed, nothing is registered with it, and nobody else uses it.
    /// let comm = unsafe { Communicator::from_raw(raw)? };
    /// let stream = Stream::new(comm.device())?;
    /// let mut x = comm.alloc_from(&stream, &[1f32; 1000])?;
    /// comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidUsage`](crate::Error::InvalidUsage) where memory is registered with it, as a window or otherwise: that of what was dropped is
    /// taken away by [`Communicator::reclaim`], what was forgotten never is; where there are graphs with operations of it; where it [shares
    /// its resources](super::Config::with_split_share); and within a host function. [`Timeout`](crate::Error::Timeout) where its work is not done; why it has failed or was aborted. It is
    /// dropped then, and so closed or aborted.
    pub fn into_raw(self) -> Result<sys::ncclComm_t> {
        let deadline = Deadline::after(self.timeout());
        handover::give("Communicator::into_raw", self.inner(), &deadline).map(|handle| handle.raw())
    }
}

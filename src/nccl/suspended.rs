//! Communicators that give memory back for a while, and what memory they have.

use std::ffi::c_int;
use std::fmt;
use std::ops::BitOr;

use super::children::suspend;
use super::clique::Clique;
use super::communicator::Communicator;
use super::memory::statistics;
use crate::error::Result;
use crate::sys;

/// Wraps the flags of `ncclCommSuspend`: what of a communicator is given back. NCCL has one so far.
///
/// ```
/// use gpucomm::nccl::Suspend;
///
/// assert_eq!(Suspend::MEMORY | Suspend::MEMORY, Suspend::MEMORY);
/// ```
#[doc(alias = "ncclCommSuspend")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Suspend(c_int);

impl Suspend {
    /// `NCCL_SUSPEND_MEM`: the memory of the device that it has for its peers.
    pub const MEMORY: Self = Self(sys::NCCL_SUSPEND_MEM as c_int);
}

impl BitOr for Suspend {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Suspend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Suspend::MEMORY")
    }
}

/// A communicator that is [suspended](Communicator::suspend): what can be done with it, which is to resume it.
#[derive(Debug)]
pub struct Suspended<'a>(&'a Communicator);

/// Wraps `ncclCommMemStat_t`: what a communicator has of the memory of its device, in bytes, as NCCL counts it. Memory that users have
/// allocated is no part of it.
///
/// ```
/// # fn main() -> gpucomm::Result<()> {
/// # use gpucomm::{Clique, Device, Error};
/// let clique = Clique::init_all(&Device::all()?)?;
/// match clique.rank(0).memory_use() {
///     Ok(memory) => assert_eq!(memory.total, memory.suspendable + memory.persistent),
///     Err(Error::Unsupported { needs, .. }) => println!("needs {needs}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ncclCommMemStat_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// `ncclStatGpuMemSuspend`: what [`Suspend::MEMORY`] gives back, whether it is given back now or not.
    pub suspendable: u64,
    /// `ncclStatGpuMemSuspended`: whether it is given back now.
    pub is_suspended: bool,
    /// `ncclStatGpuMemPersist`: what stays until the communicator ends.
    pub persistent: u64,
    /// `ncclStatGpuMemTotal`: both.
    pub total: u64,
}

impl Communicator {
    /// Wraps `ncclCommSuspend` (NCCL 2.29.7): gives memory of the device back, until the communicator is [resumed](Suspended::resume). All
    /// ranks call it, among their collectives, with the same flags.
    ///
    /// It waits until what this rank has enqueued is done, then for the others, and NCCL for all work on the device, of whatever origin.
    /// CUDA cannot do that while a stream of the device is being captured: it waits for captures of other threads before, and those that would
    /// begin wait for it. Captures that are not made by this crate it does not know: nobody has one then on the device of a rank.
    /// Until it is resumed, every other call, the making of others of it and a revoke too, gets
    /// [`Error::Suspended`](crate::Error::Suspended) with this `reason`, on each rank that of its own.
    /// Where a device works on something that another rank comes to only after a capture, both wait for each other, up to the deadline: capture before
    /// you launch.
    ///
    /// Buffers, windows and registrations stay as they are, and what was written to them; they may be used, copied and dropped meanwhile.
    /// Communicators that were split off go on.
    ///
    /// Resume it before it is closed or dropped: a suspended one is aborted then, [`Communicator::close`] says so, and NCCL (2.30.7) loses
    /// the memory that is left of it.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) with an older NCCL, and with `NCCL_DISABLE_MEM_MANAGER=1`;
    /// [`Error::InvalidUsage`](crate::Error::InvalidUsage) where it [shares its resources](super::Config::with_split_share), in a group, within a
    /// host function, and within the closure of a capture on the device of any rank of this process;
    /// [`Error::Timeout`](crate::Error::Timeout) where what was enqueued, or is captured by other threads, is not done within
    /// [`Communicator::timeout`], and nothing has happened; where a rank does not come within it the communicator is aborted.
    /// [`Error::Disagreement`](crate::Error::Disagreement) where ranks of a clique come to something else. What NCCL says: the communicator
    /// is aborted then, with all its ranks in this process.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::nccl::Suspend;
    /// use gpucomm::{Clique, Device, Error, InPlace, ReduceOp, Stream};
    ///
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// clique.spmd(|comm| {
    ///     let stream = Stream::new(comm.device())?;
    ///     let mut x = comm.alloc_from(&stream, &[1f32; 4])?;
    ///     match comm.suspend(Suspend::MEMORY, "another model has the device") {
    ///         Ok(suspended) => {
    ///             let refused = comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream);
    ///             assert!(matches!(refused, Err(Error::Suspended { .. })));
    ///             suspended.resume()?;
    ///         }
    ///         Err(Error::Unsupported { .. }) => {}
    ///         Err(error) => return Err(error),
    ///     }
    ///     comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    ///     assert_eq!(x.to_vec(&stream)?, [comm.size() as f32; 4]);
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommSuspend")]
    pub fn suspend(&self, what: Suspend, reason: &str) -> Result<Suspended<'_>> {
        suspend::suspend("Communicator::suspend", &[self.inner()], what.0, reason)?;
        Ok(Suspended(self))
    }

    /// What can be done with the communicator, where it is suspended.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::nccl::Suspend;
    /// # use gpucomm::{Clique, Device};
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// assert!(clique.rank(0).suspended().is_none());
    /// if clique.suspend(Suspend::MEMORY, "a break").is_ok() {
    ///     assert!(clique.rank(0).suspended().is_some());
    ///     clique.resume()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn suspended(&self) -> Option<Suspended<'_>> {
        self.inner().is_suspended().then_some(Suspended(self))
    }

    /// Wraps `ncclCommMemStats` (NCCL 2.29.7): what memory the communicator has, while it is active, or suspended. This rank alone calls it.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = gpucomm::Clique::init_all(&gpucomm::Device::all()?)?;
    /// if let Ok(memory) = clique.rank(0).memory_use() {
    ///     println!("{} of {} bytes can be given back", memory.suspendable, memory.total);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) with an older NCCL, and with `NCCL_DISABLE_MEM_MANAGER=1`;
    /// [`Error::InvalidUsage`](crate::Error::InvalidUsage) within a host function; why it has ended; what NCCL says.
    #[doc(alias = "ncclCommMemStats")]
    pub fn memory_use(&self) -> Result<MemoryUse> {
        let [suspendable, suspended, persistent, total] = statistics::of("memory_use", self.inner())?;
        Ok(MemoryUse { suspendable, is_suspended: suspended != 0, persistent, total })
    }
}

impl<'a> Suspended<'a> {
    /// Wraps `ncclCommResume` (NCCL 2.29.7): the communicator has its memory again, and is as it was before. All ranks call it.
    ///
    /// # Errors
    /// [`Error::Timeout`](crate::Error::Timeout) where a rank does not come within [`Communicator::timeout`]: a clique is suspended still, and
    /// can be resumed later on; across processes the communicator is aborted. What NCCL says, as where others have taken the memory: the
    /// communicator is aborted then, with all its ranks in this process. [`Error::InvalidUsage`](crate::Error::InvalidUsage) where it was
    /// resumed since, in a group, and within a host function. Why it has ended.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::nccl::{CommState, Suspend};
    /// # use gpucomm::{Clique, Device};
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// # if clique.rank(0).memory_use().is_err() { return Ok(()) }
    /// clique.spmd(|comm| {
    ///     let suspended = comm.suspend(Suspend::MEMORY, "a break")?;
    ///     assert_eq!(comm.state(), CommState::Suspended);
    ///     let comm = suspended.resume()?;
    ///     assert_eq!(comm.state(), CommState::Active);
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommResume")]
    pub fn resume(self) -> Result<&'a Communicator> {
        suspend::resume("Suspended::resume", &[self.0.inner()])?;
        Ok(self.0)
    }
}

impl Clique {
    /// Wraps `ncclCommSuspend`, on all ranks, for one thread that drives them all. See [`Communicator::suspend`].
    ///
    /// # Errors
    /// As [`Communicator::suspend`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::nccl::Suspend;
    /// # use gpucomm::{Clique, Device};
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// # if clique.rank(0).memory_use().is_err() { return Ok(()) }
    /// let device = clique.rank(0).device();
    /// let before = device.memory_info()?.free;
    /// clique.suspend(Suspend::MEMORY, "a break")?;
    /// assert!(device.memory_info()?.free >= before);
    /// clique.resume()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommSuspend")]
    pub fn suspend(&self, what: Suspend, reason: &str) -> Result<()> {
        let members: Vec<_> = self.ranks().iter().map(Communicator::inner).collect();
        suspend::suspend("Clique::suspend", &members, what.0, reason)
    }

    /// Wraps `ncclCommResume`, on all ranks, for one thread that drives them all. See [`Suspended::resume`].
    ///
    /// # Errors
    /// As [`Suspended::resume`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::nccl::Suspend;
    /// # use gpucomm::{Clique, Device, Error};
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// assert!(matches!(clique.resume(), Err(Error::InvalidUsage { .. })));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommResume")]
    pub fn resume(&self) -> Result<()> {
        let members: Vec<_> = self.ranks().iter().map(Communicator::inner).collect();
        suspend::resume("Clique::resume", &members)
    }
}

//! One rank of a communicator.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::aborter::Aborter;
use super::rank::inner::Inner;
use super::rank::state::CommState;
use super::raw::outside::outside_of_host_functions;
use super::raw::warnings;
use crate::cuda::Device;
use crate::error::{Error, Result};
use crate::sys;

/// Wraps `ncclComm_t`: one rank, on one device.
///
/// It may be moved between threads and shared by them; one call is made at a time. Its collectives are in
/// [`operations`](super#operations). Dropping it does what [`Communicator::close`] does. While panicking, or if that fails, it is
/// aborted as [`Aborter::abort`] does it, together with the other ranks of this process. A drop waits for at most ten seconds or its
/// timeout, whichever is less, and all drops of a thread that follow one another wait no longer together. What a wait of a stream, a close
/// or another drop has waited for in vain before counts, until the stream moves.
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
#[doc(alias("ncclComm_t", "NcclComm", "NcclCommunicator"))]
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

    /// The name by which errors, dumps and traces call the communicator.
    ///
    /// It is that of [`InitOptions::with_name`](crate::nccl::InitOptions::with_name), or `world`. A
    /// communicator that was made from another one is called after that, and after how it was made:
    /// `world/split(color=1)`, `world/shrink`, `world/grow`, `world/recover`.
    /// [`Config::with_name`](crate::nccl::Config::with_name) gives such a one another name. What
    /// [`from_raw`](Self::from_raw) has taken over is called `raw`.
    ///
    /// A name that was made so has 128 bytes at most: a longer one keeps its first 40 bytes and its
    /// end, with `…` in between.
    ///
    /// NCCL 2.27 and newer gets the name of a communicator that is started, or is made from another
    /// one with a configuration ([`split_with`](Self::split_with)). Others it knows by the name of
    /// the one that they were made from.
    ///
    /// Each rank has a name of its own. Ranks of one communicator that are to have the same name
    /// must be given the same.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// assert_eq!(clique.rank(0).name(), "world");
    /// let parts = clique.split(|rank| Some((0, rank)))?;
    /// assert_eq!(parts[&0].rank(0).name(), "world/split(color=0)");
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        self.inner.name.as_str()
    }

    /// The device of this rank.
    #[inline]
    pub fn device(&self) -> Device {
        self.inner.device
    }

    /// How long calls of this communicator wait: for room in the launch queue, for another thread's call, inside NCCL. What makes other
    /// communicators of it, windows or memory waits so long for all of that together.
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

    /// Sets how long calls of this communicator wait, rounded as by [`set_default_timeout`](crate::set_default_timeout). At first it is the
    /// timeout that the start was given.
    ///
    /// It is not how long a result is waited for: that are calls of streams and buffers, such as [`Stream::synchronize`](crate::Stream::synchronize)
    /// and `to_vec`, which wait as long as [`default_timeout`](crate::default_timeout) says, or the call ([`Stream::synchronize_timeout`](crate::Stream::synchronize_timeout)).
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
    /// # use gpucomm::nccl::CommState;
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # let comm = clique.rank(0);
    /// match comm.state() {
    ///     CommState::Active => {}
    ///     // Another thread has ended it, or another rank: its error stands in what every call returns.
    ///     state => eprintln!("rank {} is {state:?}", comm.rank()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn state(&self) -> CommState {
        self.inner.state()
    }

    /// Whether its ranks compare what they do before it is launched: those of a clique, and those that were started
    /// [checked](Self::init_rank_over), with what was made of them since. What has [grown](Self::grow) by ranks of other
    /// processes is checked only if it grew [over an exchange](Self::grow_over). Wraps nothing.
    ///
    /// ```
    /// # use gpucomm::{Communicator, Clique, Device, UniqueId};
    /// # fn main() -> gpucomm::Result<()> {
    /// let clique = Clique::init_all(&[Device::new(0)?])?;
    /// // SAFETY: there is one rank.
    /// let alone = unsafe { Communicator::init_rank(Device::new(0)?, 1, &UniqueId::new()?, 0)? };
    /// assert!(clique.rank(0).is_checked() && !alone.is_checked());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_checked(&self) -> bool {
        self.inner.validation.compares()
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
    /// either aborts the communicator on an error. Which one that was tells [`Communicator::cause`] then, and in words whatever is called.
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
    /// What NCCL reports, or why the communicator has ended; [`Error::InvalidUsage`](crate::Error::InvalidUsage) within a host function of a stream.
    #[doc(alias = "ncclCommGetAsyncError")]
    pub fn async_error(&self) -> Result<()> {
        outside_of_host_functions("async_error")?;
        self.inner.async_error().unwrap_or_else(|| Err(self.inner.dead("async_error")))
    }

    /// What has ended it, as it came first: the [`Error::Nccl`](crate::Error::Nccl) of an asynchronous error, with its code, or of a call that
    /// failed, an [`Error::Timeout`](crate::Error::Timeout), an [`Error::Disagreement`](crate::Error::Disagreement), an
    /// [`Error::Aborted`](crate::Error::Aborted) with the reason that somebody gave, or an [`Error::Revoked`](crate::Error::Revoked); of all ranks
    /// of this process the same. It is the [`source`](std::error::Error::source) of what later calls return. `None` while it is active or suspended, and of one that was
    /// closed.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Error};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # let comm = clique.rank(0);
    /// assert!(comm.cause().is_none());
    /// # comm.aborter().abort("it is over");
    /// // Later on:
    /// match comm.cause() {
    ///     None => {}
    ///     Some(Error::Nccl { code, last, .. }) => println!("NCCL has failed: {code}, {last:?}"),
    ///     Some(Error::Timeout { detail, .. }) => println!("something was late: {detail}"),
    ///     Some(other) => println!("{other}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn cause(&self) -> Option<Error> {
        self.inner.cause().cloned()
    }

    /// Wraps `ncclGetLastError`: a copy of the last message of NCCL in this process, which may be about another call. That of a call that
    /// fails stands in its error, in [`Error::Nccl::last`](crate::Error::Nccl).
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
    #[doc(alias = "ncclGetLastError")]
    pub fn last_error(&self) -> Option<String> {
        warnings::last_error()
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
        let (_guard, handle) = self.inner.begin_call("as_raw").ok()?;
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
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("name", &self.name())
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("device", &self.device())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

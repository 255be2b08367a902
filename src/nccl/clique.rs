//! All ranks of a communicator within one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::comm_buffer::CommBuffer;
use super::communicator::Communicator;
use super::end::{abort_members, close_members, drop_members, timeout_of};
use super::lifecycle::abort::AbortOutcome;
use super::lifecycle::start;
use super::memory::{allocate, register, window};
use super::rank::inner::Inner;
use super::registration::Registration;
use super::setup::init_options::InitOptions;
use super::window::Window;
use crate::cuda::{AsSlice, Device, Region, Stream};
use crate::element::Element;
use crate::error::{Error, Result};

/// All ranks of a communicator, each on a device of its own, in this process. Needs no `unsafe`: its ranks compare what
/// they are about to launch.
///
/// Where a rank issues another operation, count, element type, reduction or root than the others, or groups collectives
/// differently, nothing that disagrees is launched, all ranks are aborted and get the same [`Error::Disagreement`].
///
/// A rank that has closed its communicator comes to nothing more: where others have issued, or issue, what it would have to take part in,
/// they are told so at once, in the same way. What it had enqueued before is done.
///
/// Before what is done for the first time (a message from one rank to another, a collective of a kind and size) the ranks
/// wait for each other, because NCCL connects them then. One thread that drives several ranks has to put them into one
/// [`group`](super::group).
///
/// Dropping it ends all ranks at the same time, as dropping a [`Communicator`] does one.
///
/// ```
/// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// let clique = Clique::init_all(&Device::all()?)?;
/// let sums = clique.spmd(|comm| {
///     let stream = Stream::new(comm.device())?;
///     let mut x = DeviceBuffer::from_slice(&stream, &[comm.rank() as f32])?;
///     comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
///     x.to_vec(&stream)
/// })?;
/// assert_eq!(sums.len(), clique.size());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Clique {
    ranks: Vec<Communicator>,
    /// Whether the threads of programs are kept near their devices.
    pinned: AtomicBool,
}

impl Clique {
    /// Wraps `ncclCommInitRankConfig`, once a device, as `ncclCommInitAll` does: rank `r` on `devices[r]`.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// assert_eq!(clique.size(), Device::count()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there is no device, or one twice (NCCL 2.30.3 and newer have several ranks on one, slowly, where
    /// `NCCL_MULTI_RANK_GPU_ENABLE=1` is set: for tests), and where the environment says what
    /// [`Communicator::init_rank`] refuses; [`Error::Timeout`]; [`Error::LibraryTooOld`]; [`Error::InvalidUsage`] within a host function, or
    /// where no thread can be started; [`Error::Aborted`] where the [`Clique::spmd`] that this is called in has failed; what NCCL says.
    #[doc(alias("ncclCommInitRankConfig", "ncclCommInitAll"))]
    pub fn init_all(devices: &[Device]) -> Result<Self> {
        start::all_ranks("Clique::init_all", devices, &InitOptions::default()).map(Self::of)
    }

    /// Like [`Clique::init_all`], with options.
    ///
    /// ```
    /// # use gpucomm::nccl::InitOptions;
    /// # use gpucomm::{Clique, Device};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// let options = InitOptions::new().with_timeout(Duration::from_secs(30));
    /// let clique = Clique::init_all_with(&Device::all()?, &options)?;
    /// assert_eq!(clique.rank(0).timeout(), Duration::from_secs(30));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Clique::init_all`].
    pub fn init_all_with(devices: &[Device], options: &InitOptions) -> Result<Self> {
        start::all_ranks("Clique::init_all_with", devices, options).map(Self::of)
    }

    /// Of all ranks, in order.
    pub(crate) fn of(members: Vec<Arc<Inner>>) -> Self {
        let ranks = members.into_iter().map(Communicator::from_inner).collect();
        Self { ranks, pinned: AtomicBool::new(false) }
    }

    /// The [name](Communicator::name) of the communicator.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// assert_eq!(clique.name(), "world");
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        self.ranks.first().map_or("", Communicator::name)
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// The ranks, in order.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// for (at, rank) in clique.ranks().iter().enumerate() {
    ///     assert_eq!((rank.rank(), rank.size()), (at, clique.size()));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn ranks(&self) -> &[Communicator] {
        &self.ranks
    }

    /// One rank.
    ///
    /// # Panics
    /// Where `rank` is not below [`Clique::size`].
    #[track_caller]
    pub fn rank(&self, rank: usize) -> &Communicator {
        &self.ranks[rank]
    }

    /// The ranks, to be moved to threads of your own. They go on comparing.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let threads: Vec<_> = clique
    ///     .into_ranks()
    ///     .into_iter()
    ///     .map(|comm| {
    ///         std::thread::spawn(move || {
    ///             let stream = Stream::new(comm.device())?;
    ///             comm.all_reduce_scalar(1u64, ReduceOp::Sum, &stream)
    ///         })
    ///     })
    ///     .collect();
    /// for thread in threads {
    ///     assert_eq!(thread.join().expect("no panic")?, Device::count()? as u64);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_ranks(self) -> Vec<Communicator> {
        let mut clique = self;
        std::mem::take(&mut clique.ranks)
    }

    /// Whether the threads of [`Clique::spmd`] are kept to the cores that are nearest to their devices, from the next run on. They may run
    /// anywhere at first.
    ///
    /// Where the system does not say which cores these are, it has no effect: [`Device::local_cores`] tells. Threads that a program starts
    /// itself are where it was when it started them; [`Device::pin_thread`] keeps any thread near a device.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Result};
    /// # fn main() -> Result<()> {
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// clique.set_pinned(true);
    /// clique.spmd(|comm| {
    ///     // This thread is `gpucomm r0`, or so, to `top -H` and debuggers, and runs near its GPU.
    ///     let _cores = comm.device().local_cores()?;
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_pinned(&self, pinned: bool) {
        self.pinned.store(pinned, Ordering::Relaxed);
    }

    /// Whether [`Clique::set_pinned`] was asked for.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// assert!(!clique.is_pinned());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_pinned(&self) -> bool {
        self.pinned.load(Ordering::Relaxed)
    }

    /// A [`CommBuffer`] of `len` zeroed elements for each rank, for one thread that drives them all; rank `r` uses
    /// `streams[r]`.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, InPlace, ReduceOp, Stream, group};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let streams: Vec<_> = clique.ranks().iter().map(|rank| Stream::new(rank.device())).collect::<gpucomm::Result<_>>()?;
    /// let mut buffers = clique.alloc::<f32>(&streams, 1000)?;
    /// group(|g| {
    ///     for ((comm, stream), buffer) in clique.ranks().iter().zip(&streams).zip(&mut buffers) {
    ///         g.all_reduce(comm, InPlace(buffer), ReduceOp::Sum, stream)?;
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::alloc`]; [`Error::InvalidArgument`] where there is not one stream a rank.
    pub fn alloc<T: Element>(&self, streams: &[Stream], len: usize) -> Result<Vec<CommBuffer<'_, T>>> {
        const OPERATION: &str = "Clique::alloc";
        if streams.len() != self.size() {
            return Err(Error::argument(
                OPERATION,
                "streams",
                format!("{} streams, one a rank", self.size()),
                format!("{} streams", streams.len()),
            ));
        }
        let members: Vec<_> = self.ranks.iter().map(Communicator::inner).collect();
        let streams: Vec<_> = streams.iter().collect();
        let memory = allocate::many::<T>(OPERATION, &members, &streams, len, allocate::Wanted::Fitting)?;
        Ok(memory.into_iter().zip(members).map(|(alloc, inner)| CommBuffer::new(inner, alloc, len)).collect())
    }

    /// Registers memory of each rank, for one thread that drives them all; rank `r` registers that of `memory[r]`. Where one of them would
    /// have no effect, none is registered. See [`Communicator::register`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let streams: Vec<_> = clique.ranks().iter().map(|rank| Stream::new(rank.device())).collect::<gpucomm::Result<_>>()?;
    /// let weights = streams.iter().map(|stream| gpucomm::nccl::alloc::<f32>(stream, 1 << 20)).collect::<gpucomm::Result<Vec<_>>>()?;
    /// let registrations = clique.register(&weights)?;
    /// assert_eq!(registrations.len(), clique.size());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::register`]; [`Error::InvalidArgument`] where there is not one buffer a rank.
    pub fn register<'a, T: Element>(
        &self,
        memory: impl IntoIterator<Item = impl AsSlice<'a, T>>,
    ) -> Result<Vec<Registration<'_>>> {
        const OPERATION: &str = "Clique::register";
        let regions = self.regions(OPERATION, memory)?;
        let members: Vec<_> = self.ranks.iter().map(Communicator::inner).collect();
        let outcomes = register::many(OPERATION, &members, &regions)?;
        Ok(outcomes.into_iter().zip(members).map(|(outcome, inner)| Registration::new(inner, outcome)).collect())
    }

    /// A window over memory of each rank, for one thread that drives them all; rank `r` shows that of `memory[r]`. See
    /// [`Communicator::window`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let streams: Vec<_> = clique.ranks().iter().map(|rank| Stream::new(rank.device())).collect::<gpucomm::Result<_>>()?;
    /// let weights = streams.iter().map(|stream| gpucomm::nccl::alloc::<f32>(stream, 4096)).collect::<gpucomm::Result<Vec<_>>>()?;
    /// let windows = clique.window(&weights)?;
    /// assert_eq!(windows.len(), clique.size());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::window`]; [`Error::InvalidArgument`] where there is not one buffer a rank.
    pub fn window<'a, T: Element>(
        &self,
        memory: impl IntoIterator<Item = impl AsSlice<'a, T>>,
    ) -> Result<Vec<Window<'_>>> {
        const OPERATION: &str = "Clique::window";
        let regions = self.regions(OPERATION, memory)?;
        let members: Vec<_> = self.ranks.iter().map(Communicator::inner).collect();
        let made = window::many(OPERATION, &members, &regions)?;
        Ok(made.into_iter().zip(members).map(|(made, inner)| Window::new(inner, made)).collect())
    }

    /// A buffer of each rank.
    fn regions<'a, T: Element>(
        &self,
        operation: &'static str,
        memory: impl IntoIterator<Item = impl AsSlice<'a, T>>,
    ) -> Result<Vec<Region<'a>>> {
        let regions: Vec<_> = memory.into_iter().map(|memory| memory.into().region()).collect();
        if regions.len() == self.size() {
            return Ok(regions);
        }
        let expected = format!("{} buffers, one a rank", self.size());
        Err(Error::argument(operation, "memory", expected, format!("{} buffers", regions.len())))
    }

    /// Frees the memory of windows that were dropped, on all ranks, for one thread that drives them all; see [`Communicator::reclaim`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let streams: Vec<_> = clique.ranks().iter().map(|rank| Stream::new(rank.device())).collect::<gpucomm::Result<_>>()?;
    /// drop(clique.alloc::<f32>(&streams, 1 << 20)?);
    /// // The memory of those that were windows is free after this, not only at the next allocation.
    /// clique.reclaim()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::reclaim`].
    pub fn reclaim(&self) -> Result<()> {
        let members: Vec<_> = self.ranks.iter().map(Communicator::inner).collect();
        allocate::reclaim("Clique::reclaim", &members)
    }

    /// Wraps `ncclCommAbort`, on all ranks; see [`Aborter::abort`](super::Aborter::abort).
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// println!("{:?}", clique.abort("there is something better to do"));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommAbort")]
    pub fn abort(self, reason: &str) -> AbortOutcome {
        abort_members(&self.ranks, Vec::new(), reason.into(), Duration::ZERO)
    }

    /// Wraps `ncclCommFinalize` and `ncclCommDestroy`, on all ranks at the same time: [`Communicator::close`] for all, with one deadline, the
    /// shortest [timeout](Communicator::timeout) of a rank.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// // Dropping it does the same, and tells nobody of what went wrong.
    /// clique.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::close`]; the first one.
    #[doc(alias("ncclCommFinalize", "ncclCommDestroy"))]
    pub fn close(self) -> Result<()> {
        let timeout = timeout_of(&self.ranks);
        self.close_timeout(timeout)
    }

    /// As [`Clique::close`], with the given timeout.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// clique.close_timeout(Duration::from_secs(10))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn close_timeout(self, timeout: Duration) -> Result<()> {
        close_members(&self.ranks, timeout)
    }
}

impl Drop for Clique {
    fn drop(&mut self) {
        drop_members(&self.ranks);
    }
}

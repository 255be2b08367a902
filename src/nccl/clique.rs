//! All ranks of a communicator within one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::comm_buffer::CommBuffer;
use super::communicator::{Communicator, abort_members, close_members, drop_members};
use super::life::abort::AbortOutcome;
use super::life::init;
use super::memory::{allocate, register, window};
use super::registration::Registration;
use super::setup::config::InitOptions;
use super::state::inner::Inner;
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
/// Dropping it closes all ranks at the
/// same time, as dropping a [`Communicator`] does one, and waits for ten seconds at most before it aborts them.
#[derive(Debug)]
pub struct Clique {
    ranks: Vec<Communicator>,
    /// Whether the threads of programs are kept near their devices.
    pinned: AtomicBool,
}

impl Clique {
    /// Wraps `ncclCommInitRankConfig`, once a device, as `ncclCommInitAll` does: rank `r` on `devices[r]`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there is no device, or one twice; [`Error::Timeout`]; what NCCL says.
    pub fn init_all(devices: &[Device]) -> Result<Self> {
        init::all_ranks("Clique::init_all", devices, &InitOptions::default()).map(Self::of)
    }

    /// Like [`Clique::init_all`], with options.
    ///
    /// # Errors
    /// As [`Clique::init_all`].
    pub fn init_all_with(devices: &[Device], options: &InitOptions) -> Result<Self> {
        init::all_ranks("Clique::init_all_with", devices, options).map(Self::of)
    }

    /// Of all ranks, in order.
    pub(crate) fn of(members: Vec<Arc<Inner>>) -> Self {
        let ranks = members.into_iter().map(Communicator::from_inner).collect();
        Self { ranks, pinned: AtomicBool::new(false) }
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// The ranks, in order.
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
    pub fn is_pinned(&self) -> bool {
        self.pinned.load(Ordering::Relaxed)
    }

    /// A [`CommBuffer`] of `len` zeroed elements for each rank, for one thread that drives them all; rank `r` uses
    /// `streams[r]`.
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
        let memory = allocate::many::<T>(OPERATION, &members, &streams, len)?;
        Ok(memory.into_iter().zip(members).map(|(alloc, inner)| CommBuffer::new(inner, alloc, len)).collect())
    }

    /// Registers memory of each rank, for one thread that drives them all; rank `r` registers that of `memory[r]`. Where one of them would
    /// have no effect, none is registered. See [`Communicator::register`].
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
    /// # Errors
    /// As [`Communicator::reclaim`].
    pub fn reclaim(&self) -> Result<()> {
        let members: Vec<_> = self.ranks.iter().map(Communicator::inner).collect();
        allocate::reclaim("Clique::reclaim", &members)
    }

    /// Wraps `ncclCommAbort`, on all ranks; see [`Aborter::abort`](super::Aborter::abort).
    pub fn abort(self, reason: &str) -> AbortOutcome {
        abort_members(&self.ranks, Vec::new(), reason.to_owned())
    }

    /// Wraps `ncclCommFinalize` and `ncclCommDestroy`, on all ranks at the same time.
    ///
    /// # Errors
    /// As [`Communicator::close`]; the first one.
    pub fn close(self, timeout: Duration) -> Result<()> {
        close_members(&self.ranks, timeout)
    }
}

impl Drop for Clique {
    fn drop(&mut self) {
        drop_members(&self.ranks);
    }
}

//! Barriers: points that no rank passes before all have come to them.

use smallvec::SmallVec;

use super::calls::call::Calls;
use super::calls::prepare;
use super::calls::site::Site;
use super::clique::Clique;
use super::communicator::Communicator;
use super::enqueue::submit;
use crate::cuda::Stream;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// Barriers. NCCL has none: each is an `ncclAllReduce` of one byte, which ranks compare with other operations like any.
impl Communicator {
    /// Returns at once; [`Communicator::wait_at_barrier`] waits. Wraps `ncclAllReduce`: what is enqueued on `stream` from now on is not begun
    /// before all ranks have come to this point on theirs.
    ///
    /// This is the one to take where what comes next is work of a stream: it costs the host nothing. Where the host goes on itself, to
    /// read a file that another rank has written, to look at the clock, or to end, only [`Communicator::wait_at_barrier`] keeps it back.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// clique.spmd(|comm| {
    ///     let stream = Stream::new(comm.device())?;
    ///     comm.barrier(&stream)?;
    ///     // All ranks have come to the barrier when this is done.
    ///     stream.synchronize()
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of operations, and the first time of an allocation, of one byte.
    pub fn barrier(&self, stream: &Stream) -> Result<()> {
        self.enqueue_barrier("barrier", stream)
    }

    /// Waits, as `MPI_Barrier` does. Wraps `ncclAllReduce`: returns when all ranks have come to this call, or to
    /// [`Communicator::barrier`], and everything that came before it on `stream` is done. Waits no longer than [`Communicator::timeout`].
    ///
    /// This is the one to take where the host is to go on only then; between operations [`Communicator::barrier`] does, and lets the host
    /// enqueue more meanwhile.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # use std::sync::atomic::{AtomicUsize, Ordering};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let ready = AtomicUsize::new(0);
    /// clique.spmd(|comm| {
    ///     let stream = Stream::new(comm.device())?;
    ///     ready.fetch_add(1, Ordering::Relaxed);
    ///     comm.wait_at_barrier(&stream)?;
    ///     assert_eq!(ready.load(Ordering::Relaxed), comm.size());
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::barrier`], and those of [`Stream::wait`]; [`Error::Timeout`] says which rank has not come.
    pub fn wait_at_barrier(&self, stream: &Stream) -> Result<()> {
        const OPERATION: &str = "wait_at_barrier";
        let deadline = Deadline::after(self.timeout());
        self.enqueue_barrier(OPERATION, stream)?;
        stream.wait_until(OPERATION, &deadline)
    }

    /// The barrier of `operation`.
    fn enqueue_barrier(&self, operation: &'static str, stream: &Stream) -> Result<()> {
        let site = Site::new(operation, self.inner(), stream)?;
        let scratch = self.inner().scratch.get(stream)?;
        submit::prepared(prepare::barrier(site, &scratch))
    }
}

/// Barriers, for one thread that drives all ranks.
impl Clique {
    /// Returns at once; [`Clique::wait_at_barrier`] waits. Wraps `ncclAllReduce`, once a rank, in one group: [`Communicator::barrier`] of all
    /// ranks; rank `r` on `streams[r]`.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let streams: Vec<_> = clique.ranks().iter().map(|rank| Stream::new(rank.device())).collect::<gpucomm::Result<_>>()?;
    /// clique.barrier(&streams)?;
    /// // What is enqueued now begins when all streams have come to the barrier.
    /// streams[0].synchronize()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::barrier`]; [`Error::InvalidArgument`] where there is not one stream a rank.
    pub fn barrier(&self, streams: &[Stream]) -> Result<()> {
        self.enqueue_barrier("barrier", streams)
    }

    /// Waits. Wraps `ncclAllReduce`, once a rank, in one group: returns when everything that came before on `streams` is done, on all of them.
    /// Waits no longer than the [timeout](Communicator::timeout) of rank 0.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Result, Stream};
    /// # fn main() -> Result<()> {
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// let streams: Vec<_> = clique.ranks().iter().map(|rank| Stream::new(rank.device())).collect::<Result<_>>()?;
    /// let zeros = DeviceBuffer::<f32>::zeroed(&streams[0], 1000)?;
    /// clique.wait_at_barrier(&streams)?;
    /// assert!(streams[0].query()?);
    /// # drop(zeros);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Clique::barrier`] and [`Stream::wait`].
    pub fn wait_at_barrier(&self, streams: &[Stream]) -> Result<()> {
        const OPERATION: &str = "wait_at_barrier";
        let Some(first) = self.ranks().first() else { return Ok(()) };
        let deadline = Deadline::after(first.timeout());
        self.enqueue_barrier(OPERATION, streams)?;
        streams.iter().try_for_each(|stream| stream.wait_until(OPERATION, &deadline))
    }

    /// The barrier of `operation`.
    fn enqueue_barrier(&self, operation: &'static str, streams: &[Stream]) -> Result<()> {
        if streams.len() != self.size() {
            let expected = format!("{} streams, one a rank", self.size());
            return Err(Error::argument(operation, "streams", expected, format!("{} streams", streams.len())));
        }
        let ranks = || self.ranks().iter().zip(streams);
        let scratch: SmallVec<[_; 8]> =
            ranks().map(|(rank, stream)| rank.inner().scratch.get(stream)).collect::<Result<_>>()?;
        let mut calls = Calls::new();
        for ((rank, stream), scratch) in ranks().zip(&scratch) {
            calls.push(prepare::barrier(Site::new(operation, rank.inner(), stream)?, scratch)?);
        }
        submit::all(&calls)
    }
}

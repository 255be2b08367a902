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
    /// Waits, as `MPI_Barrier` does. Wraps `ncclAllReduce`: returns when all ranks have come to this call, or to
    /// [`Communicator::barrier_on_stream`], and everything that came before it on `stream` is done. Waits no longer than
    /// [`Communicator::timeout`].
    ///
    /// Take this one where the host is to go on only then: to read a file that another rank has written, to look at the clock, or to
    /// end. Between operations [`Communicator::barrier_on_stream`] does, and lets the host enqueue more meanwhile.
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
    ///     comm.barrier(&stream)?;
    ///     assert_eq!(ready.load(Ordering::Relaxed), comm.size());
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::barrier_on_stream`], and those of [`Stream::synchronize_timeout`]; [`Error::Timeout`] says which rank has
    /// not come.
    #[doc(alias = "ncclAllReduce")]
    pub fn barrier(&self, stream: &Stream) -> Result<()> {
        const OPERATION: &str = "barrier";
        let deadline = Deadline::after(self.timeout());
        self.enqueue_barrier(OPERATION, stream)?;
        stream.wait_until(OPERATION, &deadline)
    }

    /// Enqueues a barrier and returns at once; [`Communicator::barrier`] waits. Wraps `ncclAllReduce`: what is enqueued on `stream` from
    /// now on is not begun before all ranks have come to this point on theirs.
    ///
    /// Take this one where what comes next is work of a stream: it costs the host nothing, and does not keep it back.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// clique.spmd(|comm| {
    ///     let stream = Stream::new(comm.device())?;
    ///     comm.barrier_on_stream(&stream)?;
    ///     // All ranks have come to the barrier when this is done.
    ///     stream.synchronize()
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of operations, and the first time of an allocation, of one byte.
    #[doc(alias = "ncclAllReduce")]
    pub fn barrier_on_stream(&self, stream: &Stream) -> Result<()> {
        self.enqueue_barrier("barrier_on_stream", stream)
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
    /// Waits. Wraps `ncclAllReduce`, once a rank, in one group: returns when everything that came before on `streams` is done, on all of them;
    /// rank `r` has `streams[r]`. Waits no longer than the [timeout](Communicator::timeout) of rank 0.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Result, Stream};
    /// # fn main() -> Result<()> {
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// let streams: Vec<_> = clique.ranks().iter().map(|rank| Stream::new(rank.device())).collect::<Result<_>>()?;
    /// let zeros = DeviceBuffer::<f32>::zeroed(&streams[0], 1000)?;
    /// clique.barrier(&streams)?;
    /// assert!(streams[0].query()?);
    /// # drop(zeros);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Clique::barrier_on_stream`] and [`Stream::synchronize_timeout`].
    #[doc(alias = "ncclAllReduce")]
    pub fn barrier(&self, streams: &[Stream]) -> Result<()> {
        const OPERATION: &str = "barrier";
        let Some(first) = self.ranks().first() else { return Ok(()) };
        let deadline = Deadline::after(first.timeout());
        self.enqueue_barrier(OPERATION, streams)?;
        streams.iter().try_for_each(|stream| stream.wait_until(OPERATION, &deadline))
    }

    /// Enqueues a barrier and returns at once; [`Clique::barrier`] waits. Wraps `ncclAllReduce`, once a rank, in one group:
    /// [`Communicator::barrier_on_stream`] of all ranks; rank `r` on `streams[r]`.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let streams: Vec<_> = clique.ranks().iter().map(|rank| Stream::new(rank.device())).collect::<gpucomm::Result<_>>()?;
    /// clique.barrier_on_stream(&streams)?;
    /// // What is enqueued now begins when all streams have come to the barrier.
    /// streams[0].synchronize()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::barrier_on_stream`]; [`Error::InvalidArgument`] where there is not one stream a rank.
    #[doc(alias = "ncclAllReduce")]
    pub fn barrier_on_stream(&self, streams: &[Stream]) -> Result<()> {
        self.enqueue_barrier("barrier_on_stream", streams)
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

//! Groups: several operations that start together.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use super::calls::call::{Call, Calls};
use super::calls::prepare;
use super::calls::site::Site;
use super::communicator::Communicator;
use super::enqueue::in_group::GroupMark;
use super::enqueue::separate_reductions;
use super::enqueue::submit;
use crate::cuda::{DeviceBuffer, Stream};
use crate::error::{Error, Result};

/// Wraps `ncclGroupStart` and `ncclGroupEnd`: the operations that `record` issues on the [`Group`] start together.
///
/// They are checked and recorded first. When `record` has returned `Ok`, all of them are submitted in one block; when it
/// returned an error, or panicked, none is. Buffers stay borrowed until then. One thread may so drive several ranks,
/// and ranks may send to and receive from each other in any order.
///
/// A closure with an error type of its own is for [`try_group`].
///
/// Ranks group collectives alike, and messages as they like, but for one thing: between two ranks NCCL does the first message
/// of a group in one direction together with the first in the other, and begins the second ones when both are done. So where a
/// rank puts two messages to a peer and one from it into one group, that peer must not wait for both before it sends its own.
/// In doubt, group messages that go both ways on both sides alike.
///
/// The operations of several communicators may stand in any order. Ranks that do them for the first time do them alike, in one group or one
/// by one: NCCL connects the ranks of one communicator after those of the other, and waits for them.
///
/// ```
/// # use gpucomm::{Clique, Device, DeviceBuffer, Stream, group};
/// # fn main() -> gpucomm::Result<()> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// # clique.spmd(|comm| {
/// # let stream = Stream::new(comm.device())?;
/// // A halo exchange: each rank sends to both neighbours, and receives from both.
/// let (left, right) = ((comm.rank() + comm.size() - 1) % comm.size(), (comm.rank() + 1) % comm.size());
/// let own = DeviceBuffer::from_slice(&stream, &[comm.rank() as f32; 10])?;
/// let (mut from_left, mut from_right) = (DeviceBuffer::<f32>::zeroed(&stream, 1)?, DeviceBuffer::<f32>::zeroed(&stream, 1)?);
/// group(|g| {
///     g.send(comm, own.slice(9..), right, &stream)?;
///     g.recv(comm, &mut from_left, left, &stream)?;
///     g.send(comm, own.slice(..1), left, &stream)?;
///     g.recv(comm, &mut from_right, right, &stream)
/// })?;
/// assert_eq!(from_left.to_vec(&stream)?, [left as f32]);
/// # assert_eq!(from_right.to_vec(&stream)?, [right as f32]);
/// # Ok(())
/// # })?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// What `record` returned; [`InvalidUsage`](crate::Error::InvalidUsage) within another group; what the operations return.
#[doc(alias("ncclGroupStart", "ncclGroupEnd"))]
pub fn group<'env, R>(record: impl FnOnce(&mut Group<'env>) -> Result<R>) -> Result<R> {
    try_group(record)
}

/// As [`group`], for a closure with an error type of its own.
///
/// ```
/// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream, try_group};
/// #[derive(Debug)]
/// enum Failed {
///     Gpu(gpucomm::Error),
///     NoGradients,
/// }
///
/// impl From<gpucomm::Error> for Failed {
///     fn from(error: gpucomm::Error) -> Self {
///         Self::Gpu(error)
///     }
/// }
///
/// # fn main() -> Result<(), Failed> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// # clique.try_spmd(|comm| -> Result<(), Failed> {
/// # let stream = Stream::new(comm.device())?;
/// # let mut gradients = vec![DeviceBuffer::<f32>::zeroed(&stream, 16)?];
/// try_group(|g| {
///     let Some(first) = gradients.first_mut() else { return Err(Failed::NoGradients) };
///     g.all_reduce(comm, InPlace(first), ReduceOp::Avg, &stream)?;
///     Ok(())
/// })?;
/// # Ok(())
/// # })?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`group`]; those of this crate are made into an `E`.
pub fn try_group<'env, R, E: From<Error>>(record: impl FnOnce(&mut Group<'env>) -> Result<R, E>) -> Result<R, E> {
    let mut group = Group::new();
    let value = group.record("group", record)?;
    group.submit()?;
    Ok(value)
}

/// As [`group`]; what comes to one operation is made as that.
pub(crate) fn together<'env>(
    operation: &'static str,
    record: impl FnOnce(&mut Group<'env>) -> Result<()>,
) -> Result<()> {
    let mut group = Group::new();
    group.record(operation, record)?;
    group.with_calls(|calls| {
        separate_reductions::check_group(calls)?;
        submit::all(calls)
    })
}

/// Whether `record` could be submitted, as far as this rank can tell. Nothing is.
pub(crate) fn rehearse<'env>(
    operation: &'static str,
    record: impl FnOnce(&mut Group<'env>) -> Result<()>,
) -> Result<()> {
    Group::new().record(operation, record)
}

/// The operations of a group, as far as they were recorded; see [`group`].
///
/// ```
/// # use gpucomm::{Clique, Device, DeviceBuffer, ReduceOp, Stream, group};
/// # fn main() -> gpucomm::Result<()> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// # clique.spmd(|comm| {
/// # let stream = Stream::new(comm.device())?;
/// let (rank, size) = (comm.rank(), comm.size());
/// let own = DeviceBuffer::from_slice(&stream, &vec![rank as f32; size])?;
/// let mut mean = DeviceBuffer::<f32>::zeroed(&stream, 1)?;
/// let mut all = DeviceBuffer::<f32>::zeroed(&stream, size * size)?;
/// let mut turned = DeviceBuffer::<f32>::zeroed(&stream, size)?;
/// let mut sums = DeviceBuffer::<f32>::zeroed(&stream, size)?;
/// group(|g| {
///     assert!(g.is_empty());
///     g.reduce_scatter(comm, (&own, &mut mean), ReduceOp::Avg, &stream)?;
///     g.all_gather(comm, (&own, &mut all), &stream)?;
///     g.all_to_all(comm, (&own, &mut turned), &stream)?;
///     // The result is for rank 0.
///     g.reduce(comm, (&own, &mut sums), ReduceOp::Sum, 0, &stream)?;
///     println!("{} operations", g.len());
///     Ok(())
/// })?;
/// assert_eq!(turned.to_vec(&stream)?, (0..size).map(|rank| rank as f32).collect::<Vec<_>>());
/// # Ok(())
/// # })?;
/// # Ok(())
/// # }
/// ```
pub struct Group<'a> {
    calls: Calls<'a>,
    /// In their order.
    barriers: Vec<Barrier<'a>>,
}

/// A barrier, which has memory of its own.
struct Barrier<'a> {
    site: Site<'a>,
    /// How many of the other calls come before it.
    behind: usize,
    byte: Arc<DeviceBuffer<u8>>,
}

impl fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        let mut barriers = self.barriers.iter().peekable();
        for (behind, call) in self.calls.iter().enumerate() {
            while barriers.next_if(|barrier| barrier.behind == behind).is_some() {
                list.entry(&"barrier_on_stream");
            }
            list.entry(&call.operation);
        }
        list.entries(barriers.map(|_| "barrier_on_stream")).finish()
    }
}

impl<'a> Group<'a> {
    pub(super) fn new() -> Self {
        Self { calls: Calls::new(), barriers: Vec::new() }
    }

    /// Takes what `record` issues.
    pub(super) fn record<R, E: From<Error>>(
        &mut self,
        operation: &'static str,
        record: impl FnOnce(&mut Self) -> Result<R, E>,
    ) -> Result<R, E> {
        let _mark = GroupMark::set(operation)?;
        record(self)
    }

    /// Records a call that was prepared.
    pub(super) fn add(&mut self, call: Result<Call<'a>>) -> Result<()> {
        self.calls.push(call?);
        Ok(())
    }

    /// Where calls are recorded.
    pub(crate) fn calls(&mut self) -> &mut Calls<'a> {
        &mut self.calls
    }

    /// How many calls were recorded.
    pub fn len(&self) -> usize {
        self.calls.len() + self.barriers.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records [`Communicator::barrier_on_stream`], behind which comes what is enqueued on `stream` after the group. What else is in the
    /// group starts together with it, on whatever rank.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream, group};
    /// # fn main() -> gpucomm::Result<()> {
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// # let streams: Vec<_> = clique.ranks().iter().map(|rank| Stream::new(rank.device())).collect::<gpucomm::Result<_>>()?;
    /// // One thread that drives all ranks.
    /// group(|g| clique.ranks().iter().zip(&streams).try_for_each(|(comm, stream)| g.barrier_on_stream(comm, stream)))?;
    /// streams[0].synchronize()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn barrier_on_stream(&mut self, comm: &'a Communicator, stream: &'a Stream) -> Result<()> {
        let site = Site::new("barrier_on_stream", comm.inner(), stream)?;
        // Those of one group run at the same time: nothing orders what they write.
        let again = self.barriers.iter().any(|barrier| ptr::eq(barrier.site.comm, site.comm));
        let byte = if again { Arc::new(DeviceBuffer::zeroed(stream, 1)?) } else { comm.inner().scratch.get(stream)? };
        self.barriers.push(Barrier { site, behind: self.calls.len(), byte });
        Ok(())
    }

    /// Submits the calls as one group of NCCL.
    fn submit(&mut self) -> Result<()> {
        self.with_calls(|calls| {
            separate_reductions::check_group(calls)?;
            submit::group(calls)
        })
    }

    /// Does something with all of its calls.
    pub(super) fn with_calls<R>(&mut self, then: impl FnOnce(&mut [Call<'_>]) -> Result<R>) -> Result<R> {
        if self.barriers.is_empty() {
            return then(&mut self.calls);
        }
        let mut all = Calls::with_capacity(self.len());
        let mut next = self.barriers.iter().peekable();
        let mut calls = std::mem::take(&mut self.calls).into_iter();
        for behind in 0.. {
            while let Some(barrier) = next.next_if(|barrier| barrier.behind == behind) {
                all.push(prepare::barrier(barrier.site, &barrier.byte)?);
            }
            match calls.next() {
                Some(call) => all.push(call),
                None => break,
            }
        }
        then(&mut all)
    }
}

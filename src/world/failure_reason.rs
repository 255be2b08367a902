//! Why a request has no result.

use std::fmt;

use crate::error::Error;

/// What the operation is called where it is not known which: [`Rank::why`](super::rank::Rank::why) puts the name of the request in its place.
pub(super) const SUBMIT: &str = "submit";

/// What has become of a request that failed, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// It is wrong: a length, a root, a peer, a device. Nothing was submitted.
    Refused,
    /// It was cancelled before it began.
    Cancelled,
    /// The queue of the rank had no room, or got none in time.
    Full,
    /// The reference to the rank, or the request, is of a generation that has ended.
    Stale,
    /// The world is down: it has failed, and was not rebuilt.
    Down,
    /// It was not done in time.
    Late,
    /// It had begun, and has failed.
    Failed,
    /// The world was closed, here or on the rank whose requests give the lane its turns.
    Closed,
}

/// Why a request has no result, with its buffers.
///
/// `?` makes an [`Error`] of it, and drops the buffers then.
///
/// ```
/// use gpucomm::world::{Failed, Reason, World};
/// use gpucomm::{Device, DeviceBuffer, ReduceOp, Stream};
///
/// # fn main() -> gpucomm::Result<()> {
/// let world = World::new(&Device::all()?)?;
/// let rank = world.rank(0)?;
/// let stream = Stream::new(rank.device())?;
/// let send = DeviceBuffer::from_slice(&stream, &[1f32; 8])?;
/// let recv = DeviceBuffer::<f32>::zeroed(&stream, 4)?;
/// // It is too short for that; the other ranks have nothing to do with it.
/// let Failed { error, reason, buffers, .. } = rank.all_reduce((send, recv), ReduceOp::Sum).wait().expect_err("4 are too few");
/// println!("{error}");
/// let (send, recv) = buffers.expect("they come back");
/// assert_eq!((reason, send.len(), recv.len()), (Reason::Refused, 8, 4));
/// # Ok(())
/// # }
/// ```
#[derive(thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct Failed<B> {
    /// What went wrong.
    #[source]
    pub error: Error,
    /// The same in a word.
    pub reason: Reason,
    /// What the request owned. `None` if the thread of the rank is stuck with it, in NCCL or in a request of the user's own, in spite of an
    /// abort, and if [`Request::into_back`](super::requests::Request::into_back) has panicked.
    pub buffers: Option<B>,
}

impl<B> Failed<B> {
    pub(super) fn new(reason: Reason, error: Error, buffers: Option<B>) -> Self {
        Self { error, reason, buffers }
    }
}

impl<B> fmt::Debug for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", self.reason, self.error)
    }
}

impl<B> From<Failed<B>> for Error {
    fn from(failed: Failed<B>) -> Self {
        failed.error
    }
}

//! Groups of which only the time is asked.

use std::time::Duration;

use super::enqueue::simulate;
use super::group::Group;
use crate::error::Result;
use crate::version::{self, Version};

const OPERATION: &str = "simulate";

/// Wraps `ncclGroupSimulateEnd` (NCCL 2.22): how long the collectives that `record` issues would take as one [`group`](super::group), as NCCL
/// estimates it. None of them is done: nothing is read or written, enqueued, or ordered after anything.
///
/// NCCL says the time of the one kernel that it looks at last, from the model by which it chooses algorithms: of several collectives that are
/// one by operation, reduction, type and size it is the time of all together, of others, or of several communicators, that of the last. So
/// ask for one kind at a time. There is no estimate, `None`, for what symmetric windows do, and where there are no elements.
///
/// All ranks call it, with the same collectives, among their collectives: NCCL connects in it what is done for the first time, as the collective itself would.
/// Ranks of a [`Clique`](super::Clique) compare that, and who simulates what others do gets [`Disagreement`](crate::Error::Disagreement); so it
/// counts as collectives do, in what errors say of how far ranks have come. NCCL keeps some bytes of the host for each collective until the
/// communicator ends, so it is nothing for each step of a program.
///
/// ```
/// # fn main() -> gpucomm::Result<()> {
/// use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream, nccl};
///
/// let clique = Clique::init_all(&Device::all()?)?;
/// clique.spmd(|comm| {
///     let stream = Stream::new(comm.device())?;
///     let mut gradients = DeviceBuffer::<f32>::zeroed(&stream, 1 << 20)?;
/// #   if comm.size() == 1 { return Ok(()) }
///     let time = nccl::simulate(|g| g.all_reduce(comm, InPlace(&mut gradients), ReduceOp::Sum, &stream))?;
///     println!("4 MiB: {time:?}");
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// What `record` returned. [`Unsupported`](crate::Error::Unsupported) with NCCL before 2.22.3. [`InvalidUsage`](crate::Error::InvalidUsage) within
/// a group; for messages, and all_to_all, gather and scatter, which NCCL makes messages of: it estimates none, but keeps them for the next group;
/// from 2.29.2 on for broadcasts from several roots in one communicator, which is what `all_gather_v` is made of, for the same reason; for a
/// communicator of one rank, for which NCCL copies at once; and for several communicators that
/// [share their resources](super::Config::with_split_share). [`Disagreement`](crate::Error::Disagreement) and [`Timeout`](crate::Error::Timeout) as
/// the collectives; what NCCL says.
#[doc(alias = "ncclGroupSimulateEnd")]
pub fn simulate<'env>(record: impl FnOnce(&mut Group<'env>) -> Result<()>) -> Result<Option<Duration>> {
    version::needs(OPERATION, Version::new(2, 22, 3))?;
    let mut group = Group::new();
    group.record(OPERATION, record)?;
    let microseconds = group.with_calls(|calls| simulate::simulate(OPERATION, calls))?;
    Ok(microseconds.map(|time| Duration::from_secs_f64(f64::from(time) / 1e6)))
}

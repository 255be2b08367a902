//! What a rank can be asked for.

use super::at::At;
use crate::cuda::Device;
use crate::element::ElementKind;
use crate::error::{Error, Result};
use crate::nccl::Group;

/// What a rank can be asked for: it owns its buffers, and gives them back when it is done, or has failed. Implement it for requests of your
/// own, of operations of the communicator ([`record`](Self::record)) or of whatever else is enqueued on the stream ([`enqueue`](Self::enqueue)).
///
/// ```
/// use gpucomm::nccl::Group;
/// use gpucomm::world::{World, requests::{At, Request}};
/// use gpucomm::{Device, DeviceBuffer, ElementKind, InPlace, ReduceOp, Result, Stream};
///
/// /// The mean of what the ranks have, of which the first is told to all again.
/// struct Normalise(DeviceBuffer<f32>);
///
/// impl Request for Normalise {
///     type Back = DeviceBuffer<f32>;
///
///     fn operation(&self) -> &'static str {
///         "normalise"
///     }
///
///     fn device(&self) -> Option<Device> {
///         Some(self.0.device())
///     }
///
///     fn element(&self) -> Option<ElementKind> {
///         Some(ElementKind::F32)
///     }
///
///     fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
///         at.communicator().all_reduce(InPlace(&mut self.0), ReduceOp::Avg, at.stream())?;
///         at.communicator().broadcast(InPlace(&mut self.0), 0, at.stream())
///     }
///
///     fn into_back(self) -> DeviceBuffer<f32> {
///         self.0
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let world = World::new(&Device::all()?)?;
/// let fill = |device| DeviceBuffer::from_slice(&Stream::new(device)?, &[3f32; 4]).map(Normalise);
/// let own = world.devices().into_iter().map(fill).collect::<Result<Vec<_>>>()?;
/// let back = world.submit(own).wait()?;
/// assert_eq!(back[0].to_vec(&Stream::new(back[0].device())?)?, [3.0; 4]);
/// # Ok(())
/// # }
/// ```
#[doc(alias("AllReduceRequest", "AllGatherRequest", "ReduceScatterRequest", "BroadcastRequest"))]
pub trait Request: Send + 'static {
    /// What comes back: the buffers.
    type Back: Send + 'static;

    /// Its name, in errors and in what is told of it.
    fn operation(&self) -> &'static str;

    /// The device that it is for: a rank of another device refuses it.
    fn device(&self) -> Option<Device> {
        None
    }

    /// What its elements are, where there is one kind that NCCL knows.
    fn element(&self) -> Option<ElementKind> {
        None
    }

    /// Whether it is right, as far as this rank can tell: asked before anything is submitted, by the thread that submits it.
    ///
    /// # Errors
    /// What is wrong: the request is refused with it.
    fn check(&mut self, at: &At<'_>) -> Result<()> {
        let _ = at;
        Ok(())
    }

    /// Records its operations in a group, with those of others perhaps. Those of this crate may be members of [groups](super#groups);
    /// one that does not implement it may not. As a member it is called once more before the group is submitted, to [see](At::is_rehearsal)
    /// whether it could be.
    ///
    /// # Errors
    /// What is wrong with them: nothing of the group is submitted then.
    fn record<'a>(&'a mut self, at: &At<'a>, group: &mut Group<'a>) -> Result<()> {
        let _ = (at, group);
        let reason = "it cannot be part of a group, as it records nothing".to_owned();
        Err(Error::InvalidUsage { operation: self.operation(), reason })
    }

    /// Enqueues it, on the thread of the rank. It must not wait for the device: while it blocks, no later request of the rank begins.
    ///
    /// # Errors
    /// Why that was not possible. Where there are other ranks, which may have it, the world is down then: what is wrong with a request
    /// [`check`](Self::check) says, before anybody has it.
    fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
        let (operation, at) = (self.operation(), *at);
        at.together(operation, move |group| self.record(&at, group))
    }

    /// Gives the buffers back. Called by the thread that takes the answer, after a failure too. If the answer was dropped, the request is
    /// dropped instead.
    fn into_back(self) -> Self::Back;
}

//! How a world finds out that the work of a request is done: by asking again and again, by a thread that blocks, or by a
//! callback of the device. [`Completion`] is the trait for a way of your own.

mod in_flight;
mod kinds;
mod poller;

pub use in_flight::{Bell, InFlight};
pub use kinds::{Blocking, HostCallback, Polling};
pub(super) use poller::Poller;

use std::fmt;

/// How it is found out that a request is done: chosen for a world
/// ([`WorldOptions::with_completion`](super::WorldOptions::with_completion)) or for requests
/// ([`Rank::with_completion`](super::Rank::with_completion)). There are [`Polling`],
/// [`HostCallback`] and [`Blocking`]; implement it for one of your own.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::mpsc::{self, Sender};
/// use gpucomm::world::{World, completion::{Completion, InFlight}};
/// use gpucomm::{Device, DeviceBuffer, InPlace, ReduceOp, Stream};
///
/// /// A thread of the program waits for all that ranks have on their way.
/// #[derive(Debug)]
/// struct Mine(Sender<InFlight>);
///
/// impl Completion for Mine {
///     fn watch(&self, work: InFlight) {
///         // Where nobody listens any more, it is dropped, and the thread of the rank looks after it.
///         let _ = self.0.send(work);
///     }
/// }
///
/// # fn main() -> gpucomm::Result<()> {
/// let (sender, receiver) = mpsc::channel::<InFlight>();
/// std::thread::spawn(move || receiver.into_iter().for_each(InFlight::finish));
/// let world = World::new(&Device::all()?[..1])?;
/// let stream = Stream::new(world.devices()[0])?;
/// let x = DeviceBuffer::from_slice(&stream, &[1f32; 100])?;
/// let x = world.rank(0)?.with_completion(Arc::new(Mine(sender))).all_reduce(InPlace(x), ReduceOp::Sum).wait()?;
/// # drop(x);
/// # Ok(())
/// # }
/// ```
pub trait Completion: fmt::Debug + Send + Sync + 'static {
    /// The stream has it. Called by the thread of the rank, which takes no other request before this returns: those that wait fail at their
    /// deadlines.
    fn watch(&self, work: InFlight);
}

//! Requests: a function for each operation of a communicator. Submit them alone, or several as a group, in a tuple or a list.
//! [`Request`] is the trait for requests of your own; [`Source`] and [`Target`] are those for memory of your own.
//!
//! ```
//! use gpucomm::world::{World, requests};
//! use gpucomm::{Device, DeviceBuffer, Stream};
//!
//! # fn main() -> gpucomm::Result<()> {
//! let world = World::new(&Device::all()?)?;
//! let size = world.size();
//! // Each rank sends its number to the next one, and receives that of the rank before it.
//! let groups = world.ranks().into_iter().map(|rank| {
//!     let (own, stream) = (rank.rank(), Stream::new(rank.device())?);
//!     let data = DeviceBuffer::from_slice(&stream, &[own as u32])?;
//!     let place = DeviceBuffer::<u32>::zeroed(&stream, 1)?;
//!     Ok((requests::send(data, (own + 1) % size), requests::recv(place, (own + size - 1) % size)))
//! });
//! let back = world.submit(groups.collect::<gpucomm::Result<Vec<_>>>()?).wait()?;
//! let (_, received) = &back[0];
//! assert_eq!(received.to_vec(&Stream::new(received.device())?)?, [size as u32 - 1]);
//! # Ok(())
//! # }
//! ```

mod barrier;
mod operations;
mod several;

pub use super::at::At;
pub use super::forms::OwnedBuffers;
pub use super::in_order::Enqueued;
pub use super::memory::{Source, Target};
pub use super::parts::Parts;
pub use super::reduction::OwnedReduction;
pub use super::request::Request;
pub use super::room::{Permit, Room};
pub use barrier::barrier;
pub use operations::{
    all_gather, all_gather_v, all_reduce, all_to_all, all_to_all_v, broadcast, gather, gather_v, recv, reduce,
    reduce_scatter, reduce_scatter_v, scatter, scatter_v, send,
};

//! Ranks as actors: requests from any task, answers as futures.
//!
//! A [`World`] has a thread for each rank of this process, which owns the communicator and the stream of that rank. Whoever has something for it
//! [submits](Rank::submit) a request, which owns its buffers; the [`Answer`] is a future, for any executor or none, and gives the buffers back when the device is done
//! with them, in errors too:
//!
//! ```
//! use gpucomm::world::{Op, World};
//! use gpucomm::{Device, DeviceBuffer, InPlace, Stream};
//!
//! # fn main() -> gpucomm::Result<()> {
//! let world = World::new(&Device::all()?)?;
//! // From one thread, or from one task for each rank.
//! let mut answers = Vec::new();
//! for rank in world.ranks() {
//!     let x = DeviceBuffer::from_slice(&Stream::new(rank.device())?, &[1f32; 1000])?;
//!     answers.push(rank.all_reduce(InPlace(x), Op::Sum));
//! }
//! for answer in answers {
//!     // Or `answer.await?`.
//!     let x = answer.wait()?;
//!     assert_eq!(x.to_vec(&Stream::new(x.device())?)?, [world.size() as f32; 1000]);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Requests
//!
//! | request | buffers |
//! |---|---|
//! | [`AllReduce`], [`AllGather`], [`ReduceScatter`], [`AllGatherV`], [`ReduceScatterV`] | `InPlace(buffer)`, `(send, recv)` |
//! | [`Reduce`], [`Gather`], [`GatherV`] | the same, `SendOnly(send)`, `(send, Option<recv>)` |
//! | [`Broadcast`], [`Scatter`], [`ScatterV`] | the same, `RecvOnly(recv)`, `(Option<send>, recv)` |
//! | [`AllToAll`], [`AllToAllV`] | `(send, recv)` |
//! | [`Send`], [`Recv`] | a buffer |
//! | [`Barrier`] | |
//! | a tuple of requests, or a list | a group: they start together |
//! | what implements [`Request`] | its own |
//!
//! Each has a method of [`Rank`], such as [`Rank::all_reduce`], and one of [`World`] for all ranks at once. A buffer is what implements [`Source`] and, where it is written,
//! [`Target`]: a [`DeviceBuffer`](crate::DeviceBuffer), a [`Part`] of one, a [`CommBuffer`](crate::CommBuffer) that keeps its communicator, an `Arc` that is only read.
//!
//! A request is checked by the thread that submits it, and refused before anything is submitted where it is wrong: [`Failed`] says why, in
//! words and as a [`Reason`], and has the buffers.
//!
//! ```
//! use gpucomm::world::{AllReduce, Op, Recv, Send, World};
//! use gpucomm::{Device, DeviceBuffer, InPlace, Result, Stream};
//!
//! # fn main() -> Result<()> {
//! let world = World::new(&Device::all()?)?;
//! let size = world.size();
//! let ring = |rank: gpucomm::world::Rank| -> Result<_> {
//!     let stream = Stream::new(rank.device())?;
//!     let (next, before) = ((rank.rank() + 1) % size, (rank.rank() + size - 1) % size);
//!     let own = DeviceBuffer::from_slice(&stream, &[rank.rank() as u32])?;
//!     let count = DeviceBuffer::from_slice(&stream, &[1u32])?;
//!     // A message to the next rank, one from the rank before, and a sum, as one request.
//!     let group = (Send::new(own, next), Recv::new(DeviceBuffer::<u32>::zeroed(&stream, 1)?, before), AllReduce::new(InPlace(count), Op::Sum));
//!     Ok(rank.submit(group))
//! };
//! for (rank, answer) in world.ranks().into_iter().map(ring).collect::<Result<Vec<_>>>()?.into_iter().enumerate() {
//!     let (_sent, received, count) = answer.wait()?;
//!     let stream = Stream::new(count.device())?;
//!     assert_eq!((received.to_vec(&stream)?[0] as usize, count.to_vec(&stream)?[0] as usize), ((rank + size - 1) % size, size));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Answers
//!
//! An answer comes when the result is there. How that is found out is a [`Completion`]: [`Polling`], [`HostCallback`], [`Blocking`] or one of your own, chosen
//! for the world or for a request. With [`Rank::submit_in_order`] it comes when the request is enqueued, with an event to wait for on other streams.
//! An [`Answer`] that is dropped cancels what has not begun.
//!
//! # Order
//!
//! The requests of a rank are done in the order in which they were submitted. All ranks must have collectives in one order: of several tasks that
//! submit to several ranks each takes a [`Lane`] of its own, and the world has a [sequencer](WorldOptions::sequenced), or they ask all ranks at once
//! ([`World::submit`]). Where the order differs, ranks of one process, and those of [checked](crate::nccl::InitOptions::checked) communicators, are told
//! so by name ([`Error::Disagreement`](crate::Error::Disagreement)).
//!
//! # Failures
//!
//! Where a communicator has failed, a device or a process is lost, or work is late, the generation of the world ends. All of its requests are
//! answered, with their buffers, here and, over an [exchange](World::join), in the other processes. [`World::health`] and [`World::watch`] tell of it. [`World::rebuild`],
//! or [`Rebuild::Automatic`], makes the next one, of the same ranks or of those that are left. A [`Rank`] of a generation that has ended refuses
//! what is submitted to it ([`Reason::Stale`]).
//!
//! Each process has a thread for the world, and two for each of its ranks. Nobody who is slow holds up the thread of a rank: its queue is [bounded](WorldOptions::queue), and who submits more
//! waits, awaits [room](Rank::room), or is [refused](Overflow).

mod answer;
mod at;
mod capabilities;
mod completion;
mod core;
mod counters;
mod faces;
mod forms;
mod in_order;
mod keeper;
mod lane;
mod listen;
mod memory;
mod op;
mod options;
mod order;
mod park;
mod queue;
mod rank;
mod rebuild;
mod request;
mod requests;
mod room;
mod seat;
mod shutdown;
mod task;
mod threads;
mod told;
mod vitals;
mod why;
mod wide;
mod wide_faces;
#[allow(clippy::module_inception)]
mod world;

pub use answer::Answer;
pub use at::At;
pub use capabilities::{Ask, Capabilities};
pub use completion::{Bell, Blocking, Completion, HostCallback, InFlight, Polling};
pub use counters::Metrics;
pub use forms::{Form, OfAll, OfOne, OfRoot};
pub use in_order::{Enqueued, InOrder};
pub use lane::Lane;
pub use memory::{Part, Source, Target};
pub use op::Op;
pub use options::{Members, Overflow, Rebuild, WhileDown, WorldOptions};
pub use rank::Rank;
pub use request::Request;
pub use requests::alike::{AllGather, AllToAll, Exchanged};
pub use requests::barrier::Barrier;
pub use requests::message::{Recv, Send};
pub use requests::reducing::{AllReduce, Reduce, ReduceScatter};
pub use requests::rooted::{Broadcast, Gather, Scatter};
pub use requests::variable::{AllGatherV, AllToAllV, GatherV, Parts, ReduceScatterV, ScatterV};
pub use room::{Permit, Room};
pub use shutdown::Shutdown;
pub use vitals::{Changed, Health, HealthWatch, Phase};
pub use why::{Failed, Reason};
pub use wide::Wide;
pub use world::World;

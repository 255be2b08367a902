//! Ranks as actors: requests from any task, answers as futures.
//!
//! A [`World`] has a thread for each rank of this process, which owns the communicator and the stream of that rank. Whoever has something for it
//! [submits](Rank::submit) a request, which owns its buffers; the [`Answer`] is a future, for any executor or none, and gives the buffers back when the device is done
//! with them, in errors too:
//!
//! ```
//! use gpucomm::world::{World, requests};
//! use gpucomm::{Device, DeviceBuffer, InPlace, ReduceOp, Stream};
//!
//! # fn main() -> gpucomm::Result<()> {
//! let world = World::new(&Device::all()?)?;
//! // From one thread, or from one task for each rank.
//! let mut answers = Vec::new();
//! for rank in world.ranks() {
//!     let x = DeviceBuffer::from_slice(&Stream::new(rank.device())?, &[1f32; 1000])?;
//!     answers.push(rank.all_reduce(InPlace(x), ReduceOp::Sum));
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
//! | [`all_reduce`](requests::all_reduce), [`all_gather`](requests::all_gather), [`reduce_scatter`](requests::reduce_scatter), [`all_gather_v`](requests::all_gather_v), [`reduce_scatter_v`](requests::reduce_scatter_v) | `InPlace(buffer)`, `(send, recv)` |
//! | [`reduce`](requests::reduce), [`gather`](requests::gather), [`gather_v`](requests::gather_v) | the same, `SendOnly(send)`, `(send, Option<recv>)` |
//! | [`broadcast`](requests::broadcast), [`scatter`](requests::scatter), [`scatter_v`](requests::scatter_v) | the same, `RecvOnly(recv)`, `(Option<send>, recv)` |
//! | [`all_to_all`](requests::all_to_all), [`all_to_all_v`](requests::all_to_all_v) | `(send, recv)` |
//! | [`send`](requests::send), [`recv`](requests::recv) | a buffer |
//! | [`barrier`](requests::barrier) | |
//! | a tuple of requests, or a list | a group: they start together |
//! | what implements [`Request`](requests::Request) | its own |
//!
//! Each has a method of [`Rank`], such as [`Rank::all_reduce`], and one of [`World`] for all ranks at once. A buffer is what implements [`Source`](requests::Source) and, where it is written,
//! [`Target`](requests::Target): a [`DeviceBuffer`](crate::DeviceBuffer), a [`Part`] of one, a [`CommBuffer`](crate::CommBuffer) that keeps its communicator, an `Arc` that is only read.
//! A reduction takes a [`ReduceOp`](crate::ReduceOp) or a [`PreMul`].
//!
//! A request is checked by the thread that submits it, and refused before anything is submitted where it is wrong: [`Failed`] says why, in
//! words and as a [`Reason`], and has the buffers.
//!
//! ```
//! use gpucomm::world::{World, requests};
//! use gpucomm::{Device, DeviceBuffer, InPlace, ReduceOp, Result, Stream};
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
//!     let group = (requests::send(own, next), requests::recv(DeviceBuffer::<u32>::zeroed(&stream, 1)?, before), requests::all_reduce(InPlace(count), ReduceOp::Sum));
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
//! ## Of your own
//!
//! What a rank does with a request is up to it; of what memory it is, to whoever makes it:
//! ```
//! use gpucomm::nccl::{AllRanks, Group};
//! use gpucomm::world::{World, requests::{self, At, OwnedBuffers, Request, Source, Target}};
//! use gpucomm::{Device, DeviceBuffer, InPlace, ReduceOp, Result, Stream};
//!
//! /// The largest of the elements of all ranks, and their sums, of whatever memory; what rank 0 has of either goes to all.
//! struct Both<F>(F, F);
//!
//! impl<F: OwnedBuffers<AllRanks, Element = f32>> Request for Both<F> {
//!     type Back = (F::Back, F::Back);
//!
//!     fn operation(&self) -> &'static str {
//!         "both"
//!     }
//!
//!     fn check(&mut self, at: &At<'_>) -> Result<()> {
//!         // What is recorded is checked, and thrown away.
//!         at.rehearse("both", move |at, group| self.record(at, group))
//!     }
//!
//!     fn record<'a>(&'a mut self, at: &At<'a>, group: &mut Group<'a>) -> Result<()> {
//!         let (comm, stream) = (at.communicator(), at.stream());
//!         group.all_reduce(comm, self.0.buffers(), ReduceOp::Max, stream)?;
//!         group.reduce(comm, self.1.buffers(), ReduceOp::Sum, 0, stream)
//!     }
//!
//!     fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
//!         assert!(!at.is_rehearsal() && at.generation() == 1 && at.shared().is_active());
//!         let here = *at;
//!         let Self(_, sums) = self;
//!         here.together("both", |group| group.reduce(here.communicator(), sums.buffers(), ReduceOp::Sum, 0, here.stream()))?;
//!         at.communicator().broadcast(self.1.buffers(), 0, at.stream())?;
//!         at.communicator().all_reduce(self.0.buffers(), ReduceOp::Max, at.stream())
//!     }
//!
//!     fn into_back(self) -> Self::Back {
//!         (self.0.into_back(), self.1.into_back())
//!     }
//! }
//!
//! fn main() -> Result<()> {
//!     let world = World::new(&Device::all()?)?;
//!     let make = |device: Device| -> Result<_> {
//!         let stream = Stream::new(device)?;
//!         let mut pair = (DeviceBuffer::from_slice(&stream, &[1f32; 3])?, DeviceBuffer::from_slice(&stream, &[1f32; 3])?);
//!         assert_eq!((pair.0.source().len(), pair.1.target().len()), (3, 3));
//!         Ok(Both(InPlace(pair.0), InPlace(pair.1)))
//!     };
//!     let requests = world.devices().into_iter().map(make).collect::<Result<Vec<_>>>()?;
//!     for (largest, sums) in world.submit(requests).wait()? {
//!         let stream = Stream::new(sums.device())?;
//!         assert_eq!((largest.to_vec(&stream)?[0], sums.to_vec(&stream)?[0]), (1.0, world.size() as f32));
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Answers
//!
//! An answer comes when the result is there. How that is found out is a [`Completion`](completion::Completion): [`Polling`](completion::Polling), [`HostCallback`](completion::HostCallback), [`Blocking`](completion::Blocking) or one of your own, chosen
//! for the world or for a request. With [`Rank::submit_in_order`] it comes when the request is enqueued, with an event to wait for on other streams.
//! An [`Answer`] that is dropped lets its request go on.
//!
//! A completion of your own has each request as it is on its way:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use gpucomm::Device;
//! use gpucomm::world::{World, WorldOptions, completion::{Completion, InFlight}, requests};
//!
//! /// Looks at once where there is little time, and is told by the device else.
//! #[derive(Debug)]
//! struct Mine;
//!
//! impl Completion for Mine {
//!     fn watch(&self, work: InFlight) {
//!         match work.query() {
//!             Ok(true) => work.finish(),
//!             _ if work.remaining() < Duration::from_secs(1) => work.look_every(Duration::from_micros(10)),
//!             _ => {
//!                 println!("{} is on its way", work.operation());
//!                 let stream = work.stream().clone();
//!                 let bell = work.look_at_bell();
//!                 // Where that is not possible, the rank looks now and then.
//!                 let _ = stream.launch_host(move || bell.ring());
//!             }
//!         }
//!     }
//! }
//!
//! fn main() -> gpucomm::Result<()> {
//!     let options = WorldOptions::new().with_completion(Arc::new(Mine));
//!     let world = World::new_with(&Device::all()?, &options)?;
//!     world.submit(world.ranks().iter().map(|_| requests::barrier())).wait()?;
//!     Ok(())
//! }
//! ```
//!
//! # Order
//!
//! The requests of a rank are done in the order in which they were submitted. All ranks must have collectives in one order: of several tasks that
//! submit to several ranks each takes a [`Lane`] of its own, and the world has a [sequencer](WorldOptions::with_sequenced), or they ask all ranks at once
//! ([`World::submit`]). Where the order differs, ranks of one process, and those of [checked](crate::nccl::InitOptions::with_checked) communicators, are told
//! so by name ([`Error::Disagreement`](crate::Error::Disagreement)).
//!
//! How requests are submitted, by whom they are awaited, and for all ranks at once:
//!
//! ```
//! use gpucomm::world::{Lane, Overflow, World, WorldOptions, health::Health};
//! use gpucomm::{Device, DeviceBuffer, ReduceOp, Result, Stream};
//! use std::time::Duration;
//!
//! fn main() -> Result<()> {
//!     let world = World::new_with(&Device::all()?, &WorldOptions::new().with_sequenced(true))?;
//!     let size = world.size();
//!     // A rank may be told how requests are to be submitted.
//!     let rank = world.rank(0)?.with_lane(&Lane::new("maintenance")).with_overflow(Overflow::Refuse);
//!     assert_eq!(rank.generation(), 1);
//!     let answers = world.barrier().into_answers().map_err(gpucomm::Error::from)?;
//!     assert_eq!(answers.len(), size);
//!     assert!(answers.into_iter().all(|answer| answer.is_ready() || answer.wait().is_ok()));
//!     assert!(world.barrier().wait_timeout(Duration::from_secs(60)).is_ok());
//!     // As many elements of each rank as its number and one more: gathered at rank 0, and scattered again.
//!     let counts: Vec<_> = (1..=size).collect();
//!     let total = counts.iter().sum();
//!     let make = |rank: usize, len: usize| DeviceBuffer::from_slice(&Stream::new(world.devices()[rank])?, &vec![1u32; len]);
//!     let own = (0..size).map(|rank| Ok((make(rank, counts[rank])?, (rank == 0).then(|| make(0, total)).transpose()?)));
//!     let mut back = world.gather_v(own.collect::<Result<Vec<_>>>()?, counts.clone(), 0).wait()?;
//!     let all = back[0].1.take();
//!     let forms = back.into_iter().zip(std::iter::once(all).chain(std::iter::repeat_with(|| None)));
//!     let back = world.scatter_v(forms.map(|((own, _), all)| (all, own)), counts.clone(), 0).wait()?;
//!     assert_eq!(back[0].1.len(), counts[0]);
//!     let whole = (0..size).map(|rank| Ok((make(rank, total)?, make(rank, counts[rank])?))).collect::<Result<Vec<_>>>()?;
//!     let (_, sums) = world.reduce_scatter_v(whole, counts, ReduceOp::Sum).wait()?.swap_remove(0);
//!     assert_eq!(sums.to_vec(&Stream::new(sums.device())?)?, [size as u32]);
//!     // A task may await what becomes of the world.
//!     let mut watch = world.watch();
//!     async fn next(watch: &mut gpucomm::world::health::HealthWatch) -> Health {
//!         watch.changed().await
//!     }
//!     let change = next(&mut watch);
//!     drop(change);
//!     Ok(())
//! }
//! ```
//!
//! # Failures
//!
//! Where a communicator has failed, a device or a process is lost, work is late, or one of several ranks could not enqueue what others may have, the
//! generation of the world ends. That a process is lost the store of the exchange tells, most within milliseconds, but those of [PyTorch](crate::exchange::C10dPlace) not at
//! all: there it is seen when a request is late, and again by those who wait for it to rebuild the world, until the timeout of
//! [`WorldOptions::with_init`]. The store that `gpucomm run` hosts tells; under `torchrun` the variable `GPUCOMM_STORE=tcp://host:port` chooses one that does. All of its requests are
//! answered, with their buffers, here and, over an [exchange](World::join), in the other processes. [`World::health`] and [`World::watch`] tell of it. [`World::rebuild`],
//! or [`Rebuild::Automatic`], makes the next one, of the same ranks or of those that are left. A [`Rank`] of a generation that has ended refuses
//! what is submitted to it ([`Reason::Stale`]).
//!
//! # User code
//!
//! User code may block or panic: then its own answer suffers, and no other one comes after its deadline.
//!
//! | user code | where it runs | while it blocks |
//! |---|---|---|
//! | [`Request::check`](requests::Request::check), [`device`](requests::Request::device), [`operation`](requests::Request::operation) | the thread that submits | that thread waits |
//! | [`Request::enqueue`](requests::Request::enqueue), [`record`](requests::Request::record), [`Completion::watch`](completion::Completion::watch) | the thread of the rank | later requests of the rank do not begin, and fail at their deadlines |
//! | [`Request::into_back`](requests::Request::into_back) | the thread that takes the answer | that thread waits |
//! | wakers, destructors of requests and completions that nobody holds any more | threads of the process for such calls | the call gets another thread |
//!
//! A world that is dropped, closed or rebuilt by the thread of a rank waits for that thread, and gives up after its grace.
//!
//! Each process has a thread for the world, and two for each of its ranks. Nobody who is slow holds up the thread of a rank: its queue is [bounded](WorldOptions::with_queue), and who submits more
//! waits, awaits [room](Rank::room), or is [refused](Overflow).

mod answer;
mod at;
mod capabilities;
pub mod completion;
mod core;
mod counters;
mod end;
mod failure_reason;
mod forked;
mod forms;
mod guarded;
pub mod health;
mod in_order;
mod lane;
mod listen;
mod memory;
mod monitor;
mod note;
mod options;
mod order;
mod park;
mod parts;
mod queue;
mod rank;
mod rank_thread;
mod rebuild;
mod reduction;
mod request;
pub mod requests;
mod room;
mod stage;
mod task;
mod terms;
mod threads;
mod traced;
mod wide;
#[allow(clippy::module_inception)]
mod world;

pub use answer::Answer;
pub use failure_reason::{Failed, Reason};
pub use lane::Lane;
pub use memory::Part;
pub use options::{Members, Overflow, Rebuild, WhileDown, WorldOptions};
pub use rank::Rank;
pub use reduction::PreMul;
pub use wide::WideAnswer;
pub use world::World;

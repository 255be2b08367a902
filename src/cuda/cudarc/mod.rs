//! Streams and memory of the crate [`cudarc`](https://docs.rs/cudarc), in operations of this crate. With the feature `cudarc`.
//!
//! A [`SharedStream`] is a stream of cudarc on which this crate enqueues too; it goes wherever a `&Stream` goes. [`SharedStream::lend`] makes
//! `CudaSlice`, `CudaView` and `CudaViewMut` operands, without `unsafe`:
//!
//! ```no_run
//! use cudarc::driver::CudaContext;
//! use gpucomm::cuda::cudarc::SharedStream;
//! use gpucomm::{Clique, Device, InPlace, ReduceOp};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clique = Clique::init_all(&[Device::new(0)?])?;
//! let stream = CudaContext::new(0)?.new_stream()?;
//! let shared = SharedStream::new(&stream)?;
//! let mut x = stream.clone_htod(&[1.0f32; 100])?;
//! shared.lend(&mut x, |mut x| clique.ranks()[0].all_reduce(InPlace(&mut x), ReduceOp::Sum, &shared))?;
//! // Any stream of cudarc comes after that.
//! let sum = stream.clone_dtoh(&x)?;
//! // What cudarc has copied is right if the operations have not failed, which only this crate knows.
//! shared.synchronize()?;
//! # drop(sum);
//! # Ok(())
//! # }
//! ```
//!
//! # What comes after what
//!
//! cudarc keeps two events for each slice: what has read it last, and what has written to it last. Who uses one waits for them, and records
//! one when the use is enqueued. `lend` does so for the stream that it is called on: that waits before the closure runs; and when the closure
//! has returned, it comes after whatever the closure has enqueued with the memory, on any stream of this crate, and the event is recorded. So nothing that cudarc
//! enqueues later, on any of its streams, comes between, and memory that is dropped is freed behind it. Where cudarc keeps no
//! such events, as long as its context has no stream but the default one, the stream of the slice takes their place: it is waited for, and waits.
//!
//! It keeps *one* event for all reads of a slice, and one for all writes, whatever parts of it they are of. What is lent comes behind what they were recorded for before: they cover all
//! that was lent, on however many streams. But cudarc's own reads do not wait for other reads, nor do uses of one part that begin before another one is recorded: they
//! record the event anew, and what it said before is lost. So the stream of the slice, on which cudarc frees it, waits as well: memory is freed behind all that was
//! lent, whatever the events say by then. That holds up what comes later on that stream, and what is lent later of its memory on others, as that waits for it.
//! Memory of the stream that it is lent on holds up nothing: what computes goes on while such memory is communicated, and waits for it by cudarc's events when it uses it.
//!
//! What is left is cudarc's own: where one of its streams reads a slice that is being read on another one, by whichever library, what writes to it on a third one comes after the later
//! read only, and the first may get what is written. Where that may be, lend it by `&mut`, which counts as a write, and whose view
//! shows itself to be read ([`SliceMut::as_slice`](crate::cuda::SliceMut::as_slice)).
//!
//! # Failed work
//!
//! cudarc knows nothing of [operations that have failed](crate::cuda#failed-work): its copies to the host tell no error. A wait for the
//! [`SharedStream`] does. Copies by this crate, of memory that is lent, return an error where anything has failed that the stream was given before.
//!
//! # What memory that is lent cannot do
//!
//! It is no part of a graph of this crate, and nobody registers it or makes a window of it: those would go on using it when it is lent no more.

mod held;
mod lendable;
mod lent_memory;
mod pair;
mod shared_stream;

pub use lendable::Lendable;
pub use shared_stream::SharedStream;

//! NVSHMEM: memory that all processing elements (PEs) have in common, and what they do with each other's.
//!
//! One process is one PE, on one device. [`Context::init`] starts it; memory that is [allocated](Context::alloc) by all PEs
//! together is *symmetric*: any PE puts to it and gets from it on any other, without that one taking part.
//!
//! # What is safe
//!
//! As everywhere in this crate, device memory is never a Rust place, and elements are types for which every bit pattern is a value: a put
//! that races with another use gives unspecified values, and no undefined behaviour. What the library would answer by the end of the
//! process is checked before: the PE, the bounds, whether an operand is symmetric, whether it can be reached.
//!
//! Calls that all PEs make together are *collective*, and come in one order on all of them. That is what
//! [`Context::init`] is unsafe for: no PE can see what the others do.
//!
//! # What waits
//!
//! Operations have two forms: `ctx.put(…)` waits, and [`ctx.on(&stream)`](Context::on)`.put(…)` enqueues on the stream. The same is true of teams
//! ([`Team::on`]).
//!
//! What is enqueued on a stream is waited for with a deadline, as all streams are. Where a thread is inside the library, which waits for other
//! PEs for ever, a [watchdog](ContextOptions::with_watchdog) says who is missing, as far as it knows, and ends the process with the code
//! [`WATCHDOG_EXIT_CODE`]. A stream that waits in vain, for a signal for example, is [`Error::Timeout`](crate::Error::Timeout), of whoever waits for the stream, which
//! does not know for which operation.
//!
//! # Graphs
//!
//! What can be part of a [graph](crate::Stream::capture) says so: transfers, signals, waits and barriers on streams. Values of the host
//! ([`put_value`](OnStream::put_value)) and [scopes](OnStream::nonblocking) cannot; calls on the host are no part of it, and are made during the
//! capture. A graph keeps the numbers that it was captured with, so each launch waits for the same value of a signal: it is set back before the next one, and a barrier
//! sees to it that nobody's next signal comes before that.
//!
//! ```
//! # use gpucomm::nvshmem::{Comparison, Context, ContextOptions, Pe, SignalOp, ContextUniqueId};
//! # use gpucomm::{Device, Stream};
//! # fn main() -> gpucomm::Result<()> {
//! # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
//! # let stream = Stream::new(device)?;
//! # // SAFETY: the only PE.
//! # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
//! // Cells with one of the left neighbour before them: its last one.
//! let (mut cells, mut came) = (ctx.alloc::<f32>(9)?, ctx.alloc_signals(1)?);
//! cells.as_slice_mut().slice_mut(1..).fill(&stream, 1.5)?;
//! let right = Pe((ctx.pe().0 + 1) % ctx.n_pes());
//! let step = stream.capture(|stream| {
//!     ctx.on(stream).put_signal(cells.symmetric(..1), cells.symmetric(8..), came.at(0), SignalOp::Set(1), right)?;
//!     ctx.on(stream).signal_wait_until(came.at(0), Comparison::Eq, 1, ())?;
//!     came.reset(stream)?;
//!     ctx.on(stream).barrier_all()
//! })?;
//! for _ in 0..3 {
//!     step.launch(&stream)?;
//! }
//! assert_eq!(cells.to_vec(&stream)?, [1.5; 9]);
//! // It keeps the memory: the end comes after its own.
//! drop((step, cells, came));
//! # ctx.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Teams
//!
//! A [`Team`] is what does things together: the PEs of [`Context::world`], of a host, or those that a [split](Team::split_strided) has made a team of. Its
//! collectives take `&mut Team`, as it does one thing at a time, and leave their results in symmetric memory: [`broadcast`](Team::broadcast),
//! [`fcollect`](Team::fcollect), which is NCCL's all-gather, [`alltoall`](Team::alltoall), [`reduce`](Team::reduce), which is its
//! all-reduce, and [`reduce_scatter`](Team::reduce_scatter).
//!
//! # Memory that is no longer needed
//!
//! The library frees symmetric memory on all PEs together. So a [`SymmetricBuffer`] that is dropped is put down, and freed where all PEs
//! come together next and all of them have dropped it: in an allocation, in [`Context::reclaim`] or in [`Context::close`].
//!
//! # What is not there
//!
//! Atomic operations by the host (`nvshmem_T_atomic_*`): the library exports them, and they do nothing but say so on stderr. Signals
//! (set and add) are what a host can do; kernels have all of them.

mod collectives;
mod kernels;
mod life;
mod memory;
mod pe;
mod registration;
mod rma;
mod state;
mod sync;
mod teams;
mod views;

pub use collectives::team_reduce::TeamReduce;
#[cfg(nvshmem_ge_3_8)]
pub use kernels::launch::LaunchShape;
#[cfg(nvshmem_ge_3_8)]
pub use kernels::queue_pairs::QueuePair;
pub use life::context::{Context, Leaks};
pub use life::on_stream::OnStream;
pub use life::options::ContextOptions;
pub use life::unique_id::ContextUniqueId;
pub use memory::buffer::SymmetricBuffer;
pub use memory::local::{AsLocal, AsLocalMut};
pub use memory::slice::{AsSymmetric, SymmetricSlice};
pub use memory::slice_mut::{AsSymmetricMut, SymmetricSliceMut};
pub use pe::{Pe, TeamPe};
pub use registration::registered::Registered;
pub use registration::registrable::Registrable;
pub use rma::nonblocking::NonblockingScope;
pub use rma::on_stream::StreamScope;
pub use rma::strided::Strides;
pub use state::death_watch::WATCHDOG_EXIT_CODE;
pub use state::status::Status;
pub use sync::comparison::Comparison;
pub use sync::signal::{Signal, SignalOp};
pub use sync::signals::SymmetricSignals;
pub use sync::waited::Waited;
pub use teams::config::TeamConfig;
pub use teams::on_stream::TeamOnStream;
pub use teams::team::Team;
#[cfg(nvshmem_ge_3_3)]
pub use teams::unique_id::{TeamPlace, TeamUniqueId};
pub use views::multicast::MulticastView;
pub use views::peer::PeerView;

//! Devices, streams, events and memory: a safe layer over the CUDA runtime.
//!
//! Four rules hold everywhere in it:
//!
//! - **Device memory is never a Rust place.** There is no `&[T]` over it; values move by copies.
//! - **Nothing is freed or overwritten while the device may use it.** Each allocation remembers which streams used it
//!   last, and every access, the free included, is ordered after the accesses that it conflicts with. Programs on one
//!   stream pay a comparison for that; nothing depends on a destructor being run.
//! - **Nothing waits without a deadline.** Methods that wait and take no timeout use
//!   [`default_timeout`](crate::default_timeout).
//!
//! - **Nothing says that all is well over work that has failed.** CUDA does not know of operations of communicators that
//!   were aborted or have failed: their stream goes on as if they had been done. So memory remembers which operations its
//!   bytes come from, and every wait asks what became of them.
//!
//! # Failed work
//!
//! An operation of a communicator fails when NCCL reports an asynchronous error, or when the communicator is aborted before
//! anybody has found the operation done. What it would have written is *marked* then: not its range alone, but the whole
//! buffer that it lies in. What follows from that:
//!
//! - Copies to the host ([`Slice::copy_to_slice`], [`Slice::to_vec`], [`PinnedBuffer::as_slice`]) of marked memory return
//!   the error: on any stream, and each time.
//! - Copies, and operations of communicators, that read marked memory mark what they write. Across ranks marks do not travel.
//! - An operation, copy or fill that overwrites all of a buffer, and reads nothing that is marked, clears its mark.
//!   [`DeviceBuffer::accept`], [`SliceMut::accept`] and [`PinnedBuffer::accept`] take the bytes as they are.
//! - Waits for a stream ([`Stream::synchronize`], [`Stream::synchronize_timeout`], [`Stream::query`]) return the error of operations
//!   that were enqueued there, or whose results were read there: until a wait has, and a communicator that is well has enqueued
//!   something more; until a communicator has enqueued something that was made after the failure; or until
//!   [`Stream::accept`]. Waits for an event return what those for its stream would have when it was recorded, each time, and
//!   count as waits for the stream.
//! - Ranks of one process may write into each other's memory, and do not all stop at the same moment. So an error comes when
//!   all of them have stopped, or at the deadline of the wait; until then queries say that the work is not done, and what
//!   overwrites a marked buffer leaves it marked. What overwrites the buffer of an operation was perhaps enqueued behind it
//!   before it failed: the mark is gone then, and what is left of the operation may still come, for some milliseconds. Where
//!   an abort is to be expected, wait for an operation before its buffers are written to again.
//! - Whatever a wait has once found to be well stays so, when its communicator fails later, and so do the results of a
//!   communicator that was closed in order. An abort does not ask the device first how far it came: what nobody has waited
//!   for counts as failed.
//!
//! The error is that of the communicator, such as [`Error::Aborted`](crate::Error::Aborted) with the reason of the abort.
//! Nobody else is disturbed: neither a new communicator on the same streams and buffers, nor another one that was there
//! before.
//!
//! # Parts
//!
//! Views of parts (`slice`, `split_at_mut`, `chunks_mut`) borrow their buffer; buffers that were split for good
//! ([`DeviceBuffer::into_split`], `into_chunks`) go to threads, and are joined again. Pinned memory has parts too
//! ([`PinnedBuffer::slice_mut`]). What is shown as its bytes (`as_bytes`), or as elements of another type ([`Slice::cast`]), stays where
//! it is. The order of uses, and what failed work has left, are known of an allocation as a whole, whatever parts it is in.
//!
//! # Memory of others
//!
//! What other libraries have allocated, [`DeviceBuffer::from_raw_parts`] looks after like memory of this crate, and keeps its owner
//! until the device is done. [`Slice::from_raw_parts`] and [`SliceMut::from_raw_parts`] are views for a call, whose order the
//! caller sees to. The other way round, `as_raw` gives the address of whatever there is.
//!
//! # Streams of others
//!
//! [`Stream::from_raw_with`] keeps the owner of a stream for as long as anything needs the stream, [`Stream::from_raw`] leaves that to the
//! caller. [`Stream::null`] is the null stream of CUDA, and [`ThreadStream`] the default stream of a thread. The other way round,
//! [`Stream::as_raw`] lends a stream, and [`Stream::into_raw`] gives it away.
//!
//! # Kernels of others
//!
//! [`Stream::launch`] is a bracket around a kernel of yours, or any call that enqueues something: it lends addresses, and what is enqueued
//! counts as a use of the buffers like a copy. `examples/own_kernel.rs` launches one between two collectives.
//!
//! The current device of a thread, of which CUDA makes so much, is of no importance here: every object knows its
//! device.

// Of what both libraries are offered, NVSHMEM needs some.
#![cfg_attr(not(feature = "nccl"), allow(unused_imports))]

#[cfg(feature = "cudarc")]
pub mod cudarc;
mod devices;
#[cfg(feature = "dlpack")]
pub mod dlpack;
mod graphs;
mod memory;
pub mod multicast;
mod order;
pub mod vmm;
mod works;

pub use devices::attribute::{DeviceAttribute, P2pAttribute};
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
#[allow(unused_imports)]
pub(crate) use devices::check::check;
pub use devices::check::error_string;
pub use devices::current::CurrentDevice;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use devices::current::restoring;
pub use devices::device::{Device, MemoryInfo};
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
#[allow(unused_imports)]
pub(crate) use devices::driver::mapping;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use devices::owners;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
#[allow(unused_imports)]
pub(crate) use devices::scarce;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use devices::settle::{settle, undisturbing};
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use devices::thread::is_off_limits;
#[cfg(feature = "nvshmem")]
pub(crate) use devices::thread::outside_host_functions;
#[cfg(feature = "nccl")]
pub(crate) use devices::thread::{is_forked, refuse, refuse_in_child};
pub use devices::versions::{driver_version, runtime_version};
pub use graphs::graph::Graph;
pub use graphs::pinned::GraphPinned;
#[cfg(feature = "nvshmem")]
pub(crate) use memory::allocated::allocation::drop_deadline;
pub(crate) use memory::allocated::allocation::{Allocation, FreeHook, Freed, Owner};
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use memory::allocated::backing::Backing;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use memory::allocated::hold::Hold;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use memory::allocated::region::Region;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use memory::basics::address::Address;
pub use memory::basics::chunks::Chunks;
pub(crate) use memory::basics::chunks::Cut;
pub(crate) use memory::basics::range::{or_panic, resolve};
#[cfg(feature = "nvshmem")]
pub(crate) use memory::basics::values;
pub(crate) use memory::bracket::LentUses;
pub use memory::bracket::{Lend, Lent, LentMut};
pub use memory::buffers::buffer::DeviceBuffer;
#[cfg(feature = "nvshmem")]
pub(crate) use memory::foreign::{is_mapped, memory_at};
pub use memory::host::block::trim_pinned;
#[cfg(feature = "nvshmem")]
pub(crate) use memory::host::memory::PinnedMemory;
pub use memory::host::pinned::PinnedBuffer;
pub use memory::host::slice::{AsPinned, PinnedSlice};
pub use memory::host::slice_mut::{AsPinnedMut, PinnedSliceMut};
pub use memory::launch::LentStream;
pub(crate) use memory::methods::device::device_methods;
pub(crate) use memory::methods::parts::part_methods;
pub use memory::views::slice::{AsSlice, Slice};
pub use memory::views::slice_mut::{AsSliceMut, SliceMut};
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use order::busy::Busy;
#[cfg(feature = "nccl")]
pub(crate) use order::busy::{are_busy, may_be_busy};
#[cfg(feature = "nvshmem")]
pub(crate) use order::busy::{give_up_on, last_timeout};
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
#[cfg_attr(not(nccl_ge_2_29_7), allow(unused_imports))]
pub(crate) use order::captures::Quiet;
pub use order::done::Done;
pub use order::event::Event;
#[cfg(feature = "nccl")]
pub(crate) use order::gate::{Entered, Shut, enter_all as enter_gates, is_shut as is_gate_shut, shut as shut_gates};
#[cfg(feature = "nccl")]
pub(crate) use order::host_function::is_running_on as is_host_function_running;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
#[allow(unused_imports)]
pub(crate) use order::in_flight::{LAUNCH, MOST_LAUNCHES};
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
#[allow(unused_imports)]
pub(crate) use order::lanes::{Tracker, Uses};
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use order::mark::Mark;
#[cfg(feature = "nccl")]
pub(crate) use order::ranged::Span;
#[cfg(feature = "nvshmem")]
pub(crate) use order::recording::Used;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use order::recording::{Launch, Mortal, Party, Recording};
pub use order::stream::{Stream, StreamOptions};
pub use order::thread_stream::ThreadStream;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
#[cfg(feature = "nvshmem")]
pub(crate) use order::turns::Lends;
pub(crate) use order::turns::{Turns, Waits, outside_of_lending};
pub(crate) use order::uses::Access;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use order::wait::Ask;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use works::carry;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use works::carry::Form;
#[cfg(feature = "nvshmem")]
pub(crate) use works::lineage::Lineage;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use works::work::{Fate, Origins, Work, Worker, now};

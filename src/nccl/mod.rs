//! Communicators, collectives and groups: NCCL.
//!
//! A [`Clique`] holds all ranks of one process and needs no `unsafe`. A [`Communicator`] is one rank; where the others live
//! in other processes, it is made from a [`UniqueId`] with [`Communicator::init_rank`], which is unsafe, and whose
//! contract all later calls rest on; [`Communicator::init_rank_over`] has them compare over an exchange what they do, where that is asked for.
//!
//! # Operations
//!
//! | | out of place | in place | wraps |
//! |---|---|---|---|
//! | [`all_reduce`](Communicator::all_reduce) | `(&send[n], &mut recv[n])` | `InPlace(&mut buffer[n])` | `ncclAllReduce` |
//! | [`reduce`](Communicator::reduce) | `(&send[n], &mut recv[n])`, `SendOnly(&send[n])` | `InPlace(&mut buffer[n])` | `ncclReduce` |
//! | [`broadcast`](Communicator::broadcast) | `(&send[n], &mut recv[n])`, `RecvOnly(&mut recv[n])` | `InPlace(&mut buffer[n])` | `ncclBroadcast` |
//! | [`all_gather`](Communicator::all_gather) | `(&send[n], &mut recv[n * size])` | `InPlace(&mut buffer[n * size])` | `ncclAllGather` |
//! | [`reduce_scatter`](Communicator::reduce_scatter) | `(&send[n * size], &mut recv[n])` | `InPlace(&mut buffer[n * size])` | `ncclReduceScatter` |
//! | [`all_to_all`](Communicator::all_to_all) | `(&send[n * size], &mut recv[n * size])` | | `ncclAlltoAll` |
//! | [`gather`](Communicator::gather) | `(&send[n], &mut recv[n * size])`, `SendOnly(&send[n])` | `InPlace(&mut buffer[n * size])` | `ncclGather` |
//! | [`scatter`](Communicator::scatter) | `(&send[n * size], &mut recv[n])`, `RecvOnly(&mut recv[n])` | `InPlace(&mut buffer[n * size])` | `ncclScatter` |
//! | [`send`](Communicator::send), [`recv`](Communicator::recv) | `&send[n]`, `&mut recv[n]` | | `ncclSend`, `ncclRecv` |
//! | [`put_signal`](Communicator#one-sided-operations), `signal`, `wait_signal` | `&local[n]` in a window, to a window of another rank | | `ncclPutSignal`, `ncclSignal`, `ncclWaitSignal` |
//!
//! Those that reduce take [`Reduce`](crate::Reduce), the ten types that NCCL computes with; the others move any [`Element`](crate::Element), a type
//! of your own as well. Ranks of a clique compare the type, not only its size. The operation of a reduction is a
//! [`ReduceOp`](crate::ReduceOp) or a reference to a [`PreMulSum`].
//!
//! The forms with `_v` take a count for each rank. [`group`] starts several operations together, and
//! [`all_reduce_many`](Communicator::all_reduce_many) one for each of many buffers. [`barrier`](Communicator::barrier), which waits,
//! [`barrier_on_stream`](Communicator::barrier_on_stream) and [`all_reduce_scalar`](Communicator::all_reduce_scalar) are made of `ncclAllReduce`.
//!
//! To the last three no other rank comes: a rank writes into the window of another, and tells it by a signal. They are of NCCL 2.29 and
//! newer. Of the interface for kernels of one's own (`nccl_device.h`) this crate has what the host asks without it: [`Communicator::properties`],
//! and where kernels reach the windows of other ranks ([`Communicator::peer_address`](Communicator#where-kernels-reach-windows), with NCCL 2.29 and newer); the
//! rest is for code that compilers of CUDA make.
//!
//! # Parts
//!
//! [`Communicator::split`] and [`Clique::split`] divide the ranks of a communicator into communicators of their own, such as the rows and
//! the columns of a grid. Those of a clique go on comparing. Nobody compares the order of operations on *different* communicators:
//! where they have several ranks in common, keep one order on all of them. Where one rank waits in a row for what another one issues
//! only after something in a column, which waits for the first, both are told at their deadlines.
//!
//! # Failures
//!
//! A result is right, or an error. Whatever waits for work of a communicator asks NCCL for asynchronous errors before it
//! says `Ok`, and what an operation that failed or was aborted would have written is never handed out as a result: not by the
//! first wait, nor by the tenth, on no stream. See [failed work](crate::cuda#failed-work). A communicator that has an error
//! is aborted, in a clique on all ranks; nothing needs to be asked now and then. [`Communicator::cause`] says which error that was, and an
//! error of NCCL has the last warning of its log in it. Where NCCL fails within a call, it leaves the device of
//! the communicator current: a [`group`] restores that of the thread, a call by itself does not, because asking for it costs time.
//!
//! That holds for the ranks of one process. Across processes there is a gap that nobody can close from here: when one process aborts a
//! rank, because its deadline has passed or because it was told to, NCCL's kernels there go on as if they were done, and ranks of other
//! processes that wait for them complete on what was never sent, without an error. A process that dies does no such thing: then the
//! others wait until their deadlines. So let no process act on a result, by writing a checkpoint, say, before all have told each other,
//! by other means than the communicator, that none has aborted since the last such point; and give all of them the same deadlines. A checked
//! communicator ([`InitOptions::with_checked`]) tells the others of an abort, a moment later: that makes the gap narrower, and does not close it.
//!
//! To recover, in one call: [`Communicator::recover`] across processes, [`Clique::recover`] in one; by hand: drop the buffers of the old
//! communicator, abort or drop it, make a new one, on the same streams if you like. Fill, broadcast or copy into the buffers what they
//! shall hold. Waits for a kept stream tell of the failure, as one of an
//! earlier communicator, until the new communicator
//! has enqueued something there, or [`Stream::accept`](crate::cuda::Stream::accept) was called. `examples/recovery.rs` does so.
//!
//! Who has several communicators, such as those of data, tensor and pipeline groups, ends them in one call, with one deadline and an answer for
//! each: [`close_all`], and [`abort_all`] where one of them has failed.
//!
//! # Deadlines
//!
//! Nothing waits for ever. A start ends with an error when a rank does not come, and need not be waited for ([`PendingCommunicator`]); so does a call that waits inside NCCL for a
//! peer (since NCCL 2.28.7, which can be woken then, after five seconds at the least), one for which there is no room in the launch
//! queue, and every wait for a stream. An [`Aborter`] stops a communicator from any thread, with all its ranks in this process.
//!
//! | what | waits for at most |
//! |---|---|
//! | an abort | ten seconds; half a second to two is what NCCL takes |
//! | dropping a [`Communicator`] or a [`Clique`] | ten seconds, or its timeout if that is less, once for all that a thread drops; two at least where one has failed that has not ended |
//! | dropping a [`DeviceBuffer`](crate::DeviceBuffer) of a device without memory pools, or the store at rank 0 of an [exchange over TCP](crate::exchange::TcpPlace) | five seconds |
//! | dropping anything else | nothing |
//!
//! NCCL waits for the whole device when it frees a communicator, and each other call of CUDA waits for NCCL meanwhile. So while
//! the device does other work (a host function, a kernel, a wait of NVSHMEM), [`Communicator::close`] and a drop return after a
//! second at most, and NCCL frees the communicator when that work is done. The crate knows the streams that it has made or
//! whose owner it has ([`Stream::from_raw_with`](crate::Stream::from_raw_with)), not those of [`Stream::from_raw`](crate::Stream::from_raw)
//! and of other libraries.
//!
//! Each communicator has a thread of its own that sleeps until it ends, and the process two: one looks for communicators that
//! NCCL reports errors of or that stay inside NCCL too long, one frees memory. Once there is a future of
//! a stream ([`Stream::done`](crate::Stream::done)), a third one asks how far such streams are.

mod aborter;
mod allocation;
mod barrier;
mod buckets;
mod c_calls;
mod calls;
#[cfg_attr(not(nccl_ge_2_28_7), allow(dead_code))]
mod children;
mod clique;
mod comm_buffer;
mod communicator;
#[cfg(nccl_ge_2_31)]
mod configured;
#[cfg(nccl_ge_2_29)]
mod device_address;
#[cfg(nccl_ge_2_32)]
mod encryption;
mod end;
#[cfg_attr(not(nccl_ge_2_28_7), allow(dead_code))]
mod enqueue;
mod flight;
mod group;
#[cfg(nccl_ge_2_29)]
mod grow;
mod handover;
#[cfg(nccl_ge_2_29)]
mod invitation;
#[cfg_attr(not(nccl_ge_2_28_7), allow(dead_code))]
mod lifecycle;
#[cfg_attr(not(nccl_ge_2_28_7), allow(dead_code))]
mod local_ranks;
mod memory;
#[cfg(nccl_ge_2_29)]
mod one_sided;
mod operations;
#[cfg(nccl_ge_2_30_4)]
mod parameter;
mod pending;
mod pre_mul_sum;
mod properties;
#[cfg_attr(not(nccl_ge_2_28_7), allow(dead_code))]
mod rank;
mod raw;
mod recorder;
mod recover;
mod reduction;
mod registration;
#[cfg_attr(not(nccl_ge_2_28_7), allow(dead_code))]
mod revoked;
#[cfg(nccl_ge_2_23_4)]
mod scalable;
mod scalars;
mod setup;
mod several;
#[cfg(nccl_ge_2_22)]
mod simulate;
mod split;
mod split_with;
mod spmd;
mod start;
#[cfg(nccl_ge_2_29_7)]
mod suspended;
mod validate;
#[cfg_attr(not(nccl_ge_2_28_7), allow(dead_code))]
mod wait;
mod window;

pub use aborter::Aborter;
#[cfg(nccl_ge_2_31)]
pub use calls::call_config::CallConfig;
pub(crate) use calls::forms::sealed;
pub use calls::forms::{AllRanks, AllToAll, Buffers, FromRoot, InPlace, IntoBuffers, RecvOnly, SendOnly, ToRoot};
pub use calls::layout::Layout;
pub use clique::Clique;
pub use comm_buffer::CommBuffer;
pub use communicator::Communicator;
#[cfg(nccl_ge_2_31)]
pub use configured::Configured;
#[cfg(nccl_ge_2_29)]
pub use device_address::DeviceAddress;
#[cfg(nccl_ge_2_32)]
pub use encryption::encrypt_sockets;
pub use flight::dump::Dump;
pub use group::{Group, group, try_group};
pub(crate) use group::{rehearse, together};
#[cfg(nccl_ge_2_29)]
pub use invitation::Invitation;
pub use lifecycle::abort::AbortOutcome;
pub(crate) use lifecycle::abort::GRACE;
pub(crate) use lifecycle::drop::DropTime;
pub use memory::alone::alloc;
pub use memory::kind::{Fitting, Local, MemoryKind, SYMMETRIC_UP_TO, Symmetric};
pub use memory::unsupported::Unsupported;
#[cfg(nccl_ge_2_29)]
pub use one_sided::WindowRange;
#[cfg(nccl_ge_2_30_4)]
pub use parameter::{Parameter, ParameterType, ParameterValue};
pub use pending::PendingCommunicator;
pub use pre_mul_sum::PreMulSum;
pub use properties::CommProperties;
pub(crate) use rank::issued::Totals;
pub use rank::state::CommState;
pub(crate) use raw::outside::outside_of_host_functions;
#[cfg(feature = "signals")]
pub use recorder::dump_on_signal;
pub use recorder::{dump_all, dump_on_panic, ras_status, ras_status_timeout};
pub use recover::Recovered;
pub(crate) use recover::begin_again;
pub use reduction::Reduction;
pub use registration::Registration;
pub use revoked::Revoked;
#[cfg(nccl_ge_2_27)]
pub use setup::choices::CtaPolicy;
#[cfg(nccl_ge_2_29)]
pub use setup::choices::GraphUsage;
#[cfg(nccl_ge_2_31)]
pub use setup::choices::HostCft;
#[cfg(nccl_ge_2_32)]
pub use setup::choices::NvlsHost;
pub use setup::config::Config;
pub use setup::determinism::prepare_determinism;
pub use setup::init_options::InitOptions;
pub use setup::unique_id::UniqueId;
pub(crate) use several::abort_all_within;
pub use several::{abort_all, close_all, close_all_timeout};
#[cfg(nccl_ge_2_22)]
pub use simulate::simulate;
pub(crate) use start::init_rank_of_world;
#[cfg(nccl_ge_2_29_7)]
pub use suspended::{MemoryUse, Suspend, Suspended};
pub use window::Window;

use raw::check;

use crate::error::Result;
use crate::version::{self, Version};

/// Wraps `ncclGetVersion`: the NCCL that is running.
///
/// ```
/// # fn main() -> gpucomm::Result<()> {
/// println!("NCCL {}, made for {}", gpucomm::nccl::version()?, gpucomm::nccl::built_version());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// What NCCL says.
#[doc(alias = "ncclGetVersion")]
pub fn version() -> Result<Version> {
    version::running_nccl()
}

/// Wraps `ncclGetErrorString`: what a result code means, such as that of a call in [`sys`](crate::sys).
///
/// ```
/// use gpucomm::sys::ncclResult_t;
///
/// assert!(!gpucomm::nccl::error_string(ncclResult_t::ncclInvalidArgument).is_empty());
/// ```
#[doc(alias = "ncclGetErrorString")]
pub fn error_string(code: crate::sys::ncclResult_t) -> String {
    check::message(code)
}

/// The NCCL that this program was built for.
///
/// ```
/// assert_eq!(gpucomm::nccl::built_version(), gpucomm::version::built_nccl().version);
/// ```
pub const fn built_version() -> Version {
    version::built_nccl().version
}

//! NCCL and NVSHMEM for Rust: linked at build time, safe, as fast as C, and testable on a machine without a GPU.
//!
//! # Quick start
//!
//! One process, a thread for each GPU:
//!
//! ```
#![doc = include_str!("../examples/all_reduce.rs")]
//! ```
//!
//! Many processes: one makes a [`UniqueId`], all get its bytes by any means, and each makes its rank with
//! [`Communicator::init_rank`]. That function is unsafe, because no process can see whether the others issue the same
//! operations; everything after it is safe. `examples/processes.rs` shows it whole.
//!
//! # What is where
//!
//! | | |
//! |---|---|
//! | [`cuda`] | [`Device`], [`Stream`], [`Event`], [`DeviceBuffer`], [`PinnedBuffer`] |
//! | [`Element`], [`Reduce`], [`ReduceOp`] | what memory may hold and operations may move, what of it NCCL reduces, and how |
//! | [`nccl`] | [`Clique`], [`Communicator`], [`CommBuffer`], [`group`], the table of operations |
//! | `nvshmem` (with the feature of that name) | memory that processes have in common, puts, gets, signals, teams |
//! | [`cuda::vmm`] | virtual memory: seen by several devices, growing, shared between processes |
//! | [`cuda::multicast`] | what is written once, and comes to several devices |
//! | [`exchange`] | what ranks tell each other outside NCCL: ids, votes, who is left |
//! | [`launch`] | [`Launch`]: what `torchrun`, `srun`, `mpirun` and the like have started |
//! | `signals` (with the feature of that name) | signals that ask the program to end, and communicators that end in order then |
//! | [`sys`] | the C interface as it is |
//! | [`version`] | versions at build time and at run time |
//! | [`known_bugs`] | bugs of library versions, and what is done about each |
//!
//! # Without a GPU
//!
//! With the feature `emulator` the libraries are replaced by a CPU implementation of the same C functions; [`backend`] says
//! which is in use, and [`EmulatorSettings`] says what it is like. Without it, a program starts on a machine without a driver too, and gets [`Error::NoDevice`].
//!
//! # Safety
//!
//! Undefined behaviour is impossible from safe code; deadlock and leaks are not undefined behaviour. A result is right or an
//! error: what an operation that failed or was aborted would have written is [not handed out](cuda#failed-work). Device memory is never a Rust place: values move by copies, and elements are types for which every bit pattern is
//! valid. Buffers are borrowed for the call only; afterwards the order of streams protects them, and whatever is done next
//! to the memory, freeing included, comes after it on the device. Nothing rests on a destructor being run.
//!
//! # Deadlines
//!
//! Nothing waits without one. Calls that are given none use [`default_timeout`].
//!
//! # Features
//!
//! By default `nccl`, `half` (`f16` and `bf16` are [elements](Element)) and `bindgen` (without it the compilers of C and C++ compare the committed bindings with
//! the installed headers, and no libclang is needed); `float8` (`F8E4M3` and `F8E5M2` are [elements](Element)), `nvshmem` (the module `nvshmem`, and its C interface in [`sys`]), `emulator`, `bytemuck` (types that are `Pod` as [elements](Element)), `signals` (the module `signals`: waiting for signals that ask the program to end; and dumps when one comes), `world` (the module `world`: ranks as actors, whose answers are futures), and for other libraries `tracing` (events and spans), `cudarc` (its memory and streams in operations), `dlpack` (tensors in and out), `mpi` and `pmix` (ranks that MPI or PMIx has started). `secret` keeps strangers out of a TCP store.

// The rooms below nccl/ offer it things that nobody else uses.
#![cfg_attr(not(feature = "nccl"), allow(dead_code))]

mod backend;
mod callbacks;
#[cfg(feature = "nccl")]
mod clock;
mod codes;
pub mod cuda;
mod deadline;
mod element;
mod emulator_settings;
mod error;
mod error_kind;
pub mod exchange;
#[cfg(feature = "nccl")]
mod hint;
pub mod known_bugs;
pub mod launch;
mod launchers;
mod lock;
#[cfg(feature = "nccl")]
mod name;
#[cfg(feature = "nccl")]
pub mod nccl;
#[cfg(feature = "nvshmem")]
pub mod nvshmem;
mod panicked;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
mod reduce_op;
mod refusal;
mod shared_deadline;
#[cfg(feature = "signals")]
pub mod signals;
pub mod sys;
mod trace;
pub mod version;
#[cfg(feature = "nccl")]
pub mod world;

pub use backend::{Backend, backend, emulator_violations};
#[cfg(feature = "bytemuck")]
#[doc(hidden)]
pub use bytemuck;
pub use codes::{CudaCode, NcclCode, NvshmemCode};
pub use cuda::{Device, DeviceBuffer, Event, Graph, PinnedBuffer, Stream};
pub use deadline::{default_timeout, set_default_timeout};
pub use element::{Element, ElementKind, Reduce};
pub use emulator_settings::EmulatorSettings;
pub use error::{Cause, Error, Result};
pub use error_kind::ErrorKind;
#[cfg(feature = "float8")]
pub use float8::{F8E4M3, F8E5M2};
#[cfg(feature = "half")]
pub use half::{bf16, f16};
pub use launch::{Launch, Launcher};
#[cfg(feature = "nccl")]
pub use nccl::{Clique, CommBuffer, Communicator, InPlace, Layout, RecvOnly, SendOnly, UniqueId, group, try_group};
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub use reduce_op::ReduceOp;
pub use version::Version;

/// The pages whose code is tested as that of the documentation is.
#[cfg(doctest)]
mod pages {
    #[cfg(feature = "nccl")]
    #[doc = include_str!("../docs/from-nccl.md")]
    mod from_nccl {}
    #[cfg(feature = "nccl")]
    #[doc = include_str!("../docs/world.md")]
    mod world {}
}

//! Placeholder.

// The rooms below nccl/ offer it things that nobody else uses.
#![cfg_attr(not(feature = "nccl"), allow(dead_code))]

mod backend;
pub mod cuda;
mod deadline;
mod element;
#[cfg(gpucomm_emulator)]
mod emulator;
mod error;
#[cfg(feature = "nccl")]
pub mod nccl;
pub mod sys;
pub mod version;

pub use backend::{Backend, backend};
pub use cuda::{Device, DeviceBuffer, Event, PinnedBuffer, Stream};
pub use deadline::{default_timeout, set_default_timeout};
pub use element::{Element, ElementKind};
pub use error::{Error, Result};
pub use half::{bf16, f16};
#[cfg(feature = "nccl")]
pub use nccl::{Clique, CommBuffer, Communicator, InPlace, Layout, RecvOnly, ReduceOp, SendOnly, UniqueId, group};
pub use version::Version;

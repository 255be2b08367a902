//! A CPU emulator of the CUDA runtime, NCCL and NVSHMEM's host API. Programs use it through `gpucomm` with the feature
//! `emulator`.
//!
//! `cuda` implements the functions of the CUDA runtime and driver, `nccl` those of NCCL, `nvshmem` those of NVSHMEM's host
//! interface. All move real data, with the order and the errors of the originals, and check what a GPU does not check: see
//! `report`. `settings` and `fault` read the environment variables that configure the emulator.
//!
//! The floors below are `memory` (what devices hold and what addresses mean), `meet` (where threads and processes of one
//! machine find each other), and `races` (unordered accesses to memory).
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "NVIDIA documents the C functions; the rest is for gpucomm only"
)]
// If only one of the two libraries is built, code that the other one needs is unused.
#![cfg_attr(not(all(feature = "nccl", feature = "nvshmem")), allow(dead_code, unused_imports))]

pub(crate) mod bugs;
mod capability;
pub(crate) mod cuda;
mod fault;
mod floats;
mod given;
#[cfg(test)]
mod isolated;
pub(crate) mod lock;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) mod meet;
pub(crate) mod memory;
#[cfg(feature = "nccl")]
pub(crate) mod nccl;
#[cfg(feature = "nvshmem")]
pub(crate) mod nvshmem;
pub(crate) mod patience;
pub(crate) mod races;
pub(crate) mod refusals;
pub(crate) mod report;
pub(crate) mod settings;
pub(crate) mod sys;
pub(crate) mod visible;

#[cfg(feature = "nccl")]
pub use nccl::calls::wish::ask as ask_of;
#[cfg(feature = "nccl")]
pub use nccl::state::registry::alive as communicators_alive;
pub use report::count as violations;
pub use settings::{Refusal, ask};

/// The C functions, which `gpucomm::sys` re-exports.
pub mod c {
    pub use super::cuda::exports::*;

    #[cfg(feature = "nccl")]
    pub use super::nccl::exports::*;

    #[cfg(feature = "nvshmem")]
    pub use super::nvshmem::exports::*;
}

//! The emulator: the same C interface, on the CPU.
//!
//! `cuda` implements the functions of the CUDA runtime and driver, `nccl` those of NCCL, `nvshmem` those of NVSHMEM's host
//! interface. All move real data, with the order and the errors of the originals, and check what a GPU does not: see `report`. What
//! may be asked of them by environment variables is in `settings` and `fault`.
//!
//! Below both lie `memory`, what devices hold and what addresses mean, `meet`, where threads and processes of one machine
//! find each other, and `races`, accesses to memory that nothing puts in order.

pub(in crate::emulator) mod bugs;
mod capability;
pub(crate) mod cuda;
mod fault;
mod floats;
mod given;
#[cfg(test)]
mod isolated;
pub(in crate::emulator) mod lock;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) mod meet;
pub(crate) mod memory;
#[cfg(feature = "nccl")]
pub(crate) mod nccl;
#[cfg(feature = "nvshmem")]
pub(crate) mod nvshmem;
pub(in crate::emulator) mod patience;
pub(crate) mod races;
pub(in crate::emulator) mod refusals;
pub(in crate::emulator) mod report;
pub(in crate::emulator) mod settings;
#[cfg(test)]
pub(in crate::emulator) mod turns;
pub(in crate::emulator) mod visible;

#[cfg(feature = "nccl")]
pub(crate) use nccl::calls::wish::ask as ask_of;
pub(crate) use report::count as violations;
pub(crate) use settings::{Refusal, ask};

/// The C functions that `sys` re-exports.
pub mod exports {
    pub use super::cuda::exports::*;

    #[cfg(feature = "nccl")]
    pub use super::nccl::exports::*;

    #[cfg(feature = "nvshmem")]
    pub use super::nvshmem::exports::*;
}

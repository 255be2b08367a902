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
pub(crate) mod cuda;
mod fault;
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
mod table;
pub(crate) mod visible;

#[cfg(feature = "nccl")]
pub use nccl::calls::wish::ask as ask_of;
#[cfg(feature = "nccl")]
pub use nccl::state::registry::alive as communicators_alive;
/// For waits of `gpucomm` before a call: what would be a deadlock inside NCCL is one there.
pub use patience::Patience as DeadlockReport;
pub use report::count as violations;
pub use settings::{Refusal, ask};

/// The C functions, which `gpucomm::sys` re-exports, by their libraries.
pub mod c {
    pub use crate::table::Export;

    pub mod cuda {
        pub use crate::cuda::exports::runtime::*;
    }

    #[cfg(feature = "nccl")]
    pub mod nccl {
        pub use crate::nccl::exports::{communicators::*, memory::*, operations::*, parameters::*};
    }

    #[cfg(feature = "nvshmem")]
    pub mod nvshmem {
        pub use crate::nvshmem::exports::{
            by_type::nvshmem_by_type, collectives::*, context::*, memory::*, teams::*, transfers::*,
        };
    }

    /// The table of all of them.
    pub fn functions() -> impl Iterator<Item = &'static Export> {
        let tables: &[&[&[Export]]] = &[
            crate::cuda::exports::TABLES,
            #[cfg(feature = "nccl")]
            crate::nccl::exports::TABLES,
            #[cfg(feature = "nvshmem")]
            crate::nvshmem::exports::TABLES,
        ];
        tables.iter().flat_map(|tables| tables.iter().copied().flatten())
    }
}

#[cfg(all(test, feature = "nccl", feature = "nvshmem"))]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn the_table_has_each_declared_function_once() {
        let declared = [gpucomm_abi::text::CUDA_NCCL, gpucomm_abi::text::NVSHMEM];
        let names =
            declared.iter().flat_map(|text| text.split("pub fn ").skip(1)).filter_map(|text| text.split('(').next());
        let declared: BTreeSet<&str> = names.collect();
        let functions: Vec<&str> = crate::c::functions().map(|function| function.name).collect();
        assert_eq!(functions.iter().copied().collect::<BTreeSet<_>>(), declared);
        assert_eq!(functions.len(), declared.len());
    }
}

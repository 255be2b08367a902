//! The C interfaces that gpucomm uses, as Rust declarations: the CUDA runtime and driver, NCCL, and NVSHMEM's host API.
//!
//! `bindgen` generates the declarations from gpucomm's own headers (`vendor/include`), and they are committed. The crate
//! contains types, constants and declarations of functions only; it links nothing. gpucomm uses it in three ways:
//! - The emulator implements these functions on these types.
//! - With the feature `emulator`, `gpucomm::sys` re-exports the types from here.
//! - Without bindgen, gpucomm's build script compares [`text`] with the installed headers and compiles the result.
#![allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all
)]

#[rustfmt::skip]
mod cuda_nccl;
#[cfg(feature = "nvshmem")]
#[rustfmt::skip]
mod nvshmem;

/// The types and constants.
pub mod types {
    pub use super::cuda_nccl::*;
    #[cfg(feature = "nvshmem")]
    pub use super::nvshmem::*;
}

/// The functions, declared and not linked.
pub mod functions {
    use super::types::*;

    include!("cuda_nccl_functions.rs");
    #[cfg(feature = "nvshmem")]
    include!("nvshmem_functions.rs");
}

/// What `cuda.h` declares of multicast objects, by hand: they came with CUDA 12.1, and gpucomm also builds with 12.0. Where
/// the headers have them, `vendor/shim` compares the two.
pub mod multicast {
    use super::types::{CUmemGenericAllocationHandle_v1, CUresult};

    include!("multicast.rs");
}

/// The source of the declarations, for build scripts.
pub mod text {
    /// The CUDA runtime and driver, and NCCL.
    pub const CUDA_NCCL: &str = concat!(include_str!("cuda_nccl.rs"), include_str!("cuda_nccl_functions.rs"));
    /// The driver's multicast functions, which CUDA 12.0 does not have.
    pub const MULTICAST: &str = include_str!("multicast.rs");
    /// NVSHMEM's host interface. The declarations need `cudaStream_t` in scope.
    pub const NVSHMEM: &str = concat!(include_str!("nvshmem.rs"), include_str!("nvshmem_functions.rs"));
}

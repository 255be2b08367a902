//! The raw C interface, exactly as C declares it.
//!
//! One flat namespace: the functions of the CUDA runtime and of NCCL that this crate calls, their types and constants.
//! Built against installed libraries, it is what bindgen makes of their headers. Without the feature `bindgen`, it is the committed
//! snapshot of `vendor/include`, without the items that the installed headers are too old for; the C compiler, and for NVSHMEM the
//! C++ compiler, compares it with these headers. With the feature `emulator`, types and constants come from that snapshot, and the
//! functions are those of the emulator.
//!
//! The feature `nvshmem` adds what a host program needs of NVSHMEM. Its constants are integers, as the parameters are that
//! they are for. Three of its initialisers are macros that Rust cannot read: `gpucommNvshmemUniqueIdInit`,
//! `gpucommNvshmemAttrInit` and `gpucommNvshmemTeamConfigInit` do what they do.
#![allow(
    dead_code,
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unused_imports,
    unreachable_pub,
    clippy::all
)]

#[cfg(not(gpucomm_emulator))]
include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

#[cfg(gpucomm_emulator)]
pub use gpucomm_abi::types::*;

/// A window of memory: NCCL before 2.27 has none, but its name is needed all the same.
#[cfg(all(feature = "nccl", not(nccl_ge_2_27)))]
pub type ncclWindow_t = *mut ::std::os::raw::c_void;

// The emulator compares the type of each of its functions with the declaration.
#[cfg(gpucomm_emulator)]
pub use gpucomm_emulator::c::cuda::*;
#[cfg(all(gpucomm_emulator, feature = "nccl"))]
pub use gpucomm_emulator::c::nccl::*;

pub(crate) mod behavior;
#[cfg(feature = "nvshmem")]
mod nvshmem;
#[cfg(gpucomm_emulator)]
pub(crate) use gpucomm_abi::multicast;
#[cfg(feature = "nvshmem")]
pub use nvshmem::*;
#[cfg(not(gpucomm_emulator))]
pub(crate) mod multicast {
    use super::{CUmemGenericAllocationHandle_v1, CUresult};

    include!(concat!(env!("OUT_DIR"), "/multicast.rs"));
}
#[cfg(feature = "pmix")]
pub(crate) mod pmix;

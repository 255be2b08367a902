//! NVSHMEM's bindings, which are made apart: its headers need declarations before them that NCCL's must not see.

#[cfg(not(gpucomm_emulator))]
mod bindings {
    use super::super::cudaStream_t;

    include!(concat!(env!("OUT_DIR"), "/bindings_nvshmem.rs"));
}
#[cfg(not(gpucomm_emulator))]
pub use bindings::*;

/// The functions, and `nvshmem_by_type`, which finds those of an element type or size by their names: in the library,
/// `dlsym` does.
#[cfg(gpucomm_emulator)]
pub use gpucomm_emulator::c::nvshmem::*;

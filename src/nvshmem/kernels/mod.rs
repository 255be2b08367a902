//! What kernels that call NVSHMEM need of the host.

#[cfg(nvshmem_ge_3_8)]
pub(super) mod launch;
mod modules;
#[cfg(nvshmem_ge_3_8)]
pub(super) mod queue_pairs;

//! What is allocated on devices, and regions of it.

pub(crate) mod allocation;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) mod backing;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) mod hold;
pub(crate) mod known;
#[cfg(feature = "cudarc")]
mod lent;
pub(crate) mod region;

//! What is allocated on devices, and regions of it.

pub(crate) mod allocation;
#[cfg(feature = "nccl")]
pub(crate) mod backing;
#[cfg(feature = "nccl")]
pub(crate) mod hold;
pub(crate) mod known;
#[cfg(feature = "cudarc")]
mod lent;
pub(crate) mod region;

//! The C interfaces as the emulator sees them: types and constants of gpucomm-abi. Tests also call the functions from here.

pub(crate) use gpucomm_abi::multicast;
pub(crate) use gpucomm_abi::types::*;

#[cfg(test)]
pub(crate) use crate::c::cuda::*;
#[cfg(all(test, feature = "nccl"))]
pub(crate) use crate::c::nccl::*;
#[cfg(feature = "nvshmem")]
pub(crate) use crate::c::nvshmem::*;

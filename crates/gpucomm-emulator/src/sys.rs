//! The C interfaces as the emulator sees them: types and constants of gpucomm-abi, and the functions of [`c`](crate::c).

pub(crate) use gpucomm_abi::multicast;
pub(crate) use gpucomm_abi::types::*;

pub(crate) use crate::c::*;

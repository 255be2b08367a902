//! Memory of NCCL: allocated and taken away where all ranks do so together.

pub(crate) mod allocate;
pub(crate) mod alone;
mod block;
pub(crate) mod register;
#[cfg(nccl_ge_2_27)]
pub(crate) mod retire;

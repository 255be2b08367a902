//! Memory of NCCL: allocated and taken away where all ranks do so together.

pub(crate) mod allocate;
pub(crate) mod alone;
mod block;
pub(crate) mod kind;
#[cfg(nccl_ge_2_27)]
mod pages;
#[cfg(nccl_ge_2_27)]
mod publish;
pub(crate) mod register;
#[cfg(nccl_ge_2_27)]
pub(crate) mod retire;
#[cfg(nccl_ge_2_29)]
pub(crate) mod signals;
#[cfg(nccl_ge_2_29_7)]
pub(crate) mod statistics;
pub(crate) mod unsupported;
pub(crate) mod window;

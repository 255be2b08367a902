//! NCCL's C interface as the rest has it: codes, numbers, handles.

pub(crate) mod check;
pub(crate) mod data_type;
pub(crate) mod group;
pub(crate) mod handle;
pub(crate) mod outside;
#[cfg(nccl_ge_2_30_4)]
pub(crate) mod parameters;
pub(crate) mod warnings;

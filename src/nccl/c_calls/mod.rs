//! How calls are made: by C functions, and around the bugs of some.

pub(crate) mod detour;
pub(crate) mod function;
pub(crate) mod make;
pub(crate) mod one_rank;
#[cfg(nccl_ge_2_31)]
mod with_config;

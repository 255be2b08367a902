//! Communicators that are made of others, or rest for a while.

#[cfg(nccl_ge_2_27)]
mod elsewhere;
mod failed;
#[cfg(nccl_ge_2_29)]
pub(crate) mod grow;
pub(crate) mod heir;
#[cfg(nccl_ge_2_27)]
mod regroup;
#[cfg(nccl_ge_2_27)]
pub(crate) mod shrink;
pub(crate) mod split;
#[cfg(nccl_ge_2_29_7)]
pub(crate) mod suspend;

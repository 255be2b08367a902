//! What a communicator is: the way to it, its ranks of this process, its streams, works and windows.

pub(crate) mod children;
pub(crate) mod compared;
pub(crate) mod factors;
pub(crate) mod family;
pub(crate) mod gate;
pub(crate) mod graphs;
pub(crate) mod growth;
pub(crate) mod guarded;
pub(crate) mod held;
pub(crate) mod helper;
pub(crate) mod household;
pub(crate) mod inner;
pub(crate) mod issued;
mod kin;
#[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
pub(crate) mod one_sided;
pub(crate) mod points;
#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
pub(crate) mod registered;
pub(crate) mod scratch;
pub(crate) mod standing;
pub(crate) mod streams;
pub(crate) mod suspended;
pub(crate) mod together;
pub(crate) mod traced;
mod visits;
#[cfg_attr(not(nccl_ge_2_28_7), allow(dead_code))]
pub(crate) mod windows;
pub(crate) mod works;

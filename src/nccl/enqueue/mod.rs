//! From calls to NCCL: agreed on with the other ranks, put in order, made and recorded.

pub(crate) mod agreement;
pub(crate) mod alone;
mod captured;
mod checked;
#[cfg(nccl_ge_2_31)]
mod configured;
pub(crate) mod connect;
pub(crate) mod itself;
pub(crate) mod launch;
pub(crate) mod lonely;
#[cfg(nccl_ge_2_29)]
pub(crate) mod one_sided;
pub(crate) mod parts;
pub(crate) mod point;
pub(crate) mod reads;
mod replay;
mod said;
#[cfg(nccl_ge_2_22)]
pub(crate) mod simulate;
pub(crate) mod submit;
pub(crate) mod weight;

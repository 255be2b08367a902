//! From calls to NCCL: validated, put in order, made and recorded.

pub(crate) mod alone;
mod captured;
pub(crate) mod connect;
#[cfg(nccl_ge_2_31)]
mod group_config;
pub(crate) mod in_group;
pub(crate) mod itself;
pub(crate) mod launch;
pub(crate) mod lonely;
#[cfg(nccl_ge_2_29)]
pub(crate) mod one_sided;
pub(crate) mod parts;
pub(crate) mod point;
pub(crate) mod reads;
mod replay;
#[cfg(nccl_ge_2_22)]
pub(crate) mod simulate;
pub(crate) mod submit;
pub(crate) mod weight;

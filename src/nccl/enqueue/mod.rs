//! From calls to NCCL: validated, put in order, made and recorded.

mod captured;
pub(crate) mod connect;
mod first_launch;
pub(crate) mod graph_usage;
#[cfg(nccl_ge_2_31)]
mod group_config;
pub(crate) mod group_parts;
pub(crate) mod in_group;
pub(crate) mod launch;
pub(crate) mod launch_cost;
mod link;
mod members;
#[cfg(nccl_ge_2_29)]
pub(crate) mod one_sided;
mod part;
pub(crate) mod point;
pub(crate) mod read_origins;
mod replay;
pub(crate) mod self_messages;
pub(crate) mod separate_reductions;
#[cfg(nccl_ge_2_22)]
pub(crate) mod simulate;
pub(crate) mod submit;

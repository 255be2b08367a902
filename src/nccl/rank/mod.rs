//! One rank of a communicator: its state, its gate to NCCL, and what it owns: streams, works,
//! windows, graphs.

pub(crate) mod another;
pub(crate) mod factors;
pub(crate) mod gate;
pub(crate) mod graphs;
pub(crate) mod guarded;
pub(crate) mod held;
pub(crate) mod helper;
pub(crate) mod inner;
pub(crate) mod issued;
pub(crate) mod name;
#[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
pub(crate) mod one_sided;
pub(crate) mod recent;
#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
pub(crate) mod registered;
pub(crate) mod scratch;
pub(crate) mod state;
pub(crate) mod traced;
pub(crate) mod transitions;
mod visits;
#[cfg_attr(not(nccl_ge_2_28_7), allow(dead_code))]
pub(crate) mod windows;
pub(crate) mod works;

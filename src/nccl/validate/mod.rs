//! Validates what ranks are about to launch: what they compare, and where.
//!
//! Ranks of one process compare in shared memory ([`in_process`]), those of several processes
//! through notes in a store ([`over_exchange`]). Both compare the same [`signature`]s.

pub(crate) mod ballot;
mod board;
pub(crate) mod connects;
pub(crate) mod element_type;
pub(crate) mod failure;
pub(crate) mod history;
#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
pub(crate) mod in_process;
#[cfg_attr(not(nccl_ge_2_28_7), allow(dead_code))]
pub(crate) mod launch;
pub(crate) mod meeting;
#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
pub(crate) mod notes;
pub(crate) mod operation;
pub(crate) mod order;
#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
pub(crate) mod over_exchange;
pub(crate) mod pair;
#[cfg(nccl_ge_2_27)]
pub(crate) mod points;
pub(crate) mod presence;
#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
pub(crate) mod regroup;
pub(crate) mod sequence;
pub(crate) mod signature;
pub(crate) mod signature_log;
pub(crate) mod split;
pub(crate) mod validation;
pub(crate) mod validator;

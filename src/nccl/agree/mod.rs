//! How the ranks of a clique compare what they are about to do: words, and where they are written.

pub(crate) mod backings;
pub(crate) mod checked;
pub(crate) mod choice;
pub(crate) mod code;
pub(crate) mod dispute;
pub(crate) mod head;
#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
pub(crate) mod in_process;
pub(crate) mod ledger;
pub(crate) mod meeting;
mod messages;
pub(crate) mod name;
pub(crate) mod not_agreed;
pub(crate) mod numbers;
pub(crate) mod order;
pub(crate) mod pair;
pub(crate) mod past;
#[cfg(nccl_ge_2_27)]
pub(crate) mod points;
pub(crate) mod presence;
pub(crate) mod recent;
#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
pub(crate) mod regroup;
pub(crate) mod round;
#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
pub(crate) mod seats;
pub(crate) mod signature;
#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
mod sits;
pub(crate) mod splits;
pub(crate) mod terms;
pub(crate) mod told;
pub(crate) mod track;
pub(crate) mod types;

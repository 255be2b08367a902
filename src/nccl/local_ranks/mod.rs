//! The ranks of this process: which communicator each belongs to, which of them end together, and
//! what NCCL still needs of them.
//!
//! [`tree`] has one node for each communicator. [`teardown`] decides when its ranks may be freed.
//! `lifecycle` acts on both.

pub(crate) mod growth;
pub(crate) mod lineage;
pub(crate) mod teardown;
pub(crate) mod tree;

//! Work that may fail behind the back of CUDA, and what it leaves behind.

pub(crate) mod carry;
pub(crate) mod history;
pub(crate) mod lineage;
pub(crate) mod work;

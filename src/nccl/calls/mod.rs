//! What is asked of NCCL: checked, and not made yet.

pub(crate) mod backing;
pub(crate) mod buffers;
pub(crate) mod call;
#[cfg(nccl_ge_2_31)]
pub(crate) mod call_config;
pub(crate) mod carry;
pub(crate) mod float8;
pub(crate) mod forms;
pub(crate) mod kind;
pub(crate) mod layout;
pub(crate) mod mixed;
pub(crate) mod operator;
pub(crate) mod personal;
pub(crate) mod pieces;
pub(crate) mod prepare;
pub(crate) mod site;
pub(crate) mod variable;
pub(crate) mod words;

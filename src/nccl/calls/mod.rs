//! What is asked of NCCL: checked, and not made yet.

pub(crate) mod call;
pub(crate) mod carry;
pub(crate) mod detour;
pub(crate) mod io;
pub(crate) mod mixed;
pub(crate) mod one_rank;
pub(crate) mod personal;
pub(crate) mod pieces;
pub(crate) mod prepare;
pub(crate) mod variable;

//! What the members of a team do together with data.

pub(crate) mod alltoall;
pub(crate) mod blocks;
pub(crate) mod broadcast;
pub(crate) mod fcollect;
mod functions;
pub(crate) mod limits;
pub(crate) mod operation;
pub(crate) mod reduce;
pub(crate) mod reducescatter;
mod words;
pub(crate) mod work;

//! What the members of a team do together with data.

pub(crate) mod blocks;
pub(crate) mod broadcast;
mod functions;
pub(crate) mod limits;
mod parts;
pub(crate) mod reduce;
pub(crate) mod team_reduce;
mod words;
pub(crate) mod work;

//! Validates what is about to be launched: single calls, groups and graphs.

pub(crate) mod group;
pub(crate) mod messages;
mod of_checked;
pub(crate) mod of_clique;
pub(crate) mod replay;

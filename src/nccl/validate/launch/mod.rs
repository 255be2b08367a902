//! Validates what is about to be launched: single calls, groups and graphs.

pub(crate) mod group;
pub(crate) mod in_process;
pub(crate) mod messages;
mod over_exchange;
pub(crate) mod replay;

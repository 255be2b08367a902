//! Calls of the host.

pub(crate) mod connect;
pub(crate) mod divide;
pub(crate) mod group;
pub(crate) mod grow;
pub(crate) mod init;
pub(crate) mod issue;
pub(crate) mod lifecycle;
pub(crate) mod one_sided;
pub(crate) mod pointers;
pub(crate) mod put;
pub(crate) mod reclaim;
pub(crate) mod registration;
mod replayed;
pub(crate) mod simulate;
pub(crate) mod suspend;
pub(crate) mod window;
pub(crate) mod wish;

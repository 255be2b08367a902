//! How communicators start, how they are, and how they end.

pub(crate) mod abort;
pub(crate) mod adopt;
pub(crate) mod closing;
mod departures;
pub(crate) mod divide;
pub(crate) mod each;
pub(crate) mod failure;
pub(crate) mod freeing;
pub(crate) mod give;
pub(crate) mod graph_memory;
pub(crate) mod health;
pub(crate) mod init;
pub(crate) mod interrupt;
mod linger;
pub(crate) mod listener;
pub(crate) mod made;
pub(crate) mod over;
pub(crate) mod reaper;
pub(crate) mod registration;
pub(crate) mod release;
#[cfg(nccl_ge_2_28_7)]
pub(crate) mod revoke;
pub(crate) mod scope;
pub(crate) mod together;
pub(crate) mod under_way;
pub(crate) mod watchdog;

//! What a communicator is, and its handle.

pub(crate) mod abort;
pub(crate) mod comm;
pub(crate) mod graph_cache;
mod handle;
pub(crate) mod inside;
pub(crate) mod link;
pub(crate) mod memory;
pub(super) mod mixing;
mod neighbours;
pub(crate) mod progress;
pub(crate) mod proxies;
pub(crate) mod redop;
pub(crate) mod registrations;
pub(crate) mod registry;
pub(crate) mod resources;
pub(crate) mod shared;
pub(crate) mod signals;
mod space;
mod stranded;
pub(crate) mod windows;
pub(crate) mod wishes;

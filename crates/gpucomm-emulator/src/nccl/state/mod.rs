//! What a communicator is, and its handle.

pub(crate) mod comm;
pub(crate) mod proxies;
pub(crate) mod redop;
pub(crate) mod registrations;
pub(crate) mod registry;
pub(crate) mod resources;
pub(crate) mod shared;
pub(crate) mod windows;
pub(crate) mod wishes;

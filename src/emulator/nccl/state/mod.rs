//! What a communicator is, and its handle.

pub(crate) mod comm;
pub(crate) mod inside;
pub(crate) mod redop;
pub(crate) mod registry;
pub(crate) mod space;
pub(crate) mod waits;

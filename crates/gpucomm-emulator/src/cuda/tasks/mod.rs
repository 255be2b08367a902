//! What is done with memory, at once or in the order of a stream.

pub(crate) mod copy;
pub(crate) mod host;
pub(crate) mod memory;
pub(crate) mod memset;
pub(crate) mod multicast;
pub(crate) mod vmm;

//! Memory of devices and of the host, and what moves between them.

pub(crate) mod address;
pub(crate) mod allocation;
pub(crate) mod block;
pub(crate) mod bracket;
pub(crate) mod buffer;
pub(crate) mod bytes;
pub(crate) mod cast;
pub(crate) mod chunks;
pub(crate) mod copy;
pub(crate) mod fill;
mod foreign;
pub(crate) mod launch;
pub(crate) mod parts;
pub(crate) mod pinned;
pub(crate) mod pinned_copy;
pub(crate) mod pinned_memory;
pub(crate) mod pinned_slice;
pub(crate) mod range;
pub(crate) mod region;
pub(crate) mod slice;
pub(crate) mod staging;
pub(crate) mod values;

//! Pinned memory of the host.

pub(crate) mod block;
pub(crate) mod memory;
pub(crate) mod pinned;
pub(crate) mod slice;
pub(crate) mod slice_mut;
pub(crate) mod staging;

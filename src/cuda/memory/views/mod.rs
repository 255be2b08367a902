//! Views of device memory.

mod chunks;
pub(crate) mod slice;
pub(crate) mod slice_mut;

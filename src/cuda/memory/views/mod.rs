//! Views of device memory.

pub(crate) mod slice;
pub(crate) mod slice_mut;

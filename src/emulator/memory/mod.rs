//! The memory of devices: the files it lies in, what is allocated there, and what addresses mean.

pub(crate) mod allocator;
pub(crate) mod arena;
pub(crate) mod poison;
pub(crate) mod ranges;

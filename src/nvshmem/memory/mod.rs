//! Symmetric memory.

pub(crate) mod allocate;
pub(crate) mod block;
pub(crate) mod buffer;
pub(crate) mod handle;
pub(crate) mod local;
mod room;
pub(crate) mod slice;
pub(crate) mod slice_mut;
pub(crate) mod there;

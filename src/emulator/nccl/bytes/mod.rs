//! Bytes, moved and reduced.

mod element;
pub(crate) mod reduce;
pub(crate) mod transfer;

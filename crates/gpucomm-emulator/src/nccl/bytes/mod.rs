//! Bytes, moved and reduced.

mod element;
mod float8;
pub(crate) mod reduce;
pub(crate) mod transfer;

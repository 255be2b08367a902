//! Bytes, moved and reduced.

pub(crate) mod reduce;
pub(crate) mod transfer;

//! Addresses, lengths, ranges and values: what memory of any kind is described by.

pub(crate) mod address;
pub(crate) mod bytes;
pub(crate) mod chunks;
pub(crate) mod range;
pub(crate) mod values;

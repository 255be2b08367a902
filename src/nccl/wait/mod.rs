//! Waiting for other ranks, and saying for what.

pub(crate) mod comparison;
pub(crate) mod departure;
pub(crate) mod entry;
pub(crate) mod needed;
pub(crate) mod patience;
pub(crate) mod pending;

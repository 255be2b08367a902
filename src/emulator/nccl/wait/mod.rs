//! Waiting for other ranks with open eyes.

pub(crate) mod deadlock;
pub(crate) mod host;

//! Waiting for other ranks with open eyes.

pub(crate) mod activity;
pub(crate) mod host;

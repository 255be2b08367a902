//! What is allocated on devices, and regions of it.

pub(crate) mod allocation;
pub(crate) mod known;
pub(crate) mod region;

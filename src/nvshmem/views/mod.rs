//! Symmetric memory of others as memory of this device: for kernels and copies, not for puts and gets.

mod lend;
pub(crate) mod multicast;
pub(crate) mod peer;

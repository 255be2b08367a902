//! Buffers of devices.

pub(crate) mod buffer;

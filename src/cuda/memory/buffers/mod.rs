//! Buffers of devices: made, shown in parts, copied, split for good.

pub(crate) mod buffer;
mod copies;
mod parts;
mod slices;

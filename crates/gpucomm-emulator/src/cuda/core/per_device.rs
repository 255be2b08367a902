//! What each device has in the files above it.

use super::device::{Device, devices};
use std::sync::LazyLock;

/// One `T` for each device.
#[derive(Debug)]
pub(super) struct PerDevice<T>(LazyLock<Vec<T>>);

impl<T: Default> PerDevice<T> {
    pub(super) const fn new() -> Self {
        Self(LazyLock::new(|| devices().iter().map(|_| T::default()).collect()))
    }

    /// That of `device`.
    pub(super) fn of(&self, device: &Device) -> &T {
        &self.0[device.ordinal as usize]
    }
}

//! What lies behind memory of a device, as far as others may come to map it.

use std::ffi::c_void;

use super::allocation::Allocation;
use crate::cuda::devices::driver;

/// What lies behind some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Backing {
    /// Memory of a pool, or pieces that were mapped one behind the other: nobody maps that elsewhere, not as one.
    #[default]
    Apart,
    /// Memory that somebody has allocated otherwise, by `cudaMalloc` perhaps.
    Allocated,
    /// Memory that was mapped as one.
    Mapped,
}

impl Allocation {
    /// What lies behind so many bytes of it from `begin` on. Asks the driver, unless it is memory of a pool: the thread has to be bound to a
    /// device.
    pub(crate) fn backing(&self, begin: *mut c_void, bytes: usize) -> Backing {
        if bytes == 0 || self.is_of_pool() {
            return Backing::Apart;
        }
        match driver::mapping(begin) {
            Some((base, length)) if begin.addr() + bytes <= base + length => Backing::Mapped,
            Some(_) => Backing::Apart,
            None => Backing::Allocated,
        }
    }
}

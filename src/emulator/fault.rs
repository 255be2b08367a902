//! Faults on demand.

/// Whether the allocation of `bytes` bytes on `device` is to fail.
pub(in crate::emulator) fn on_alloc(_device: i32, _bytes: usize) -> bool {
    false
}

//! Virtual memory of devices: physical memory, addresses, mappings, buffers over them, and sharing.

mod ends;
mod errors;
mod growth;
mod handover;
mod processes;
mod views;

use gpucomm::cuda::vmm::{Access, PhysicalMemory};
use gpucomm::{Device, DeviceBuffer, Element};

/// Bytes of one step on all devices that this runs on.
pub const GRAIN: usize = 2 << 20;

/// A buffer over mapped memory of a device, for these devices.
pub fn mapped<T: Element>(home: Device, bytes: usize, access: &[Access]) -> DeviceBuffer<T> {
    PhysicalMemory::new(home, bytes).unwrap().map(access).unwrap().into_buffer()
}

/// The same for its own device.
pub fn own<T: Element>(home: Device, bytes: usize) -> DeviceBuffer<T> {
    mapped(home, bytes, &[Access::read_write(home)])
}

/// Free memory of a device.
pub fn free(device: Device) -> usize {
    device.memory_info().unwrap().free
}

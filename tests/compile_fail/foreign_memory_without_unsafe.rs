//! Nobody but the caller knows what lies at an address.
use gpucomm::{Device, DeviceBuffer, Result};

fn take(device: Device, ptr: *mut std::ffi::c_void) -> Result<DeviceBuffer<f32>> {
    DeviceBuffer::from_raw_parts(device, ptr, 8, ())
}

fn main() {}

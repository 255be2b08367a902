//! An owner is dropped when the device is done, which may be later than anything it borrows.
use gpucomm::{Device, DeviceBuffer, Result};

fn take(device: Device, tensor: &Vec<u8>, ptr: *mut std::ffi::c_void) -> Result<DeviceBuffer<f32>> {
    // SAFETY: the case is about the owner.
    unsafe { DeviceBuffer::from_raw_parts(device, ptr, 8, tensor) }
}

fn main() {}

//! An owner may be dropped by a thread of the crate.
use std::rc::Rc;

use gpucomm::{Device, DeviceBuffer, Result};

fn take(device: Device, tensor: Rc<Vec<u8>>, ptr: *mut std::ffi::c_void) -> Result<DeviceBuffer<f32>> {
    // SAFETY: the case is about the owner.
    unsafe { DeviceBuffer::from_raw_parts(device, ptr, 8, tensor) }
}

fn main() {}

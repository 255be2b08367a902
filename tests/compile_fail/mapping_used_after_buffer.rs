//! A mapping that became a buffer grows by way of that.
use gpucomm::cuda::vmm::{Mapping, PhysicalMemory};
use gpucomm::{DeviceBuffer, Result};

fn grow(mut mapping: Mapping, more: PhysicalMemory) -> Result<DeviceBuffer<f32>> {
    let buffer = mapping.into_buffer();
    mapping.push(more)?;
    Ok(buffer)
}

fn main() {}

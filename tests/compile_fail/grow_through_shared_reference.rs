//! Growing changes a buffer.
use gpucomm::cuda::vmm::PhysicalMemory;
use gpucomm::{DeviceBuffer, Result};

fn grow(buffer: &DeviceBuffer<f32>, more: PhysicalMemory) -> Result<()> {
    buffer.grow(more)
}

fn main() {}

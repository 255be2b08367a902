//! A buffer does not grow while it is looked at.
use gpucomm::cuda::vmm::PhysicalMemory;
use gpucomm::{DeviceBuffer, Result, Stream};

fn grow(buffer: &mut DeviceBuffer<f32>, more: PhysicalMemory, stream: &Stream) -> Result<Vec<f32>> {
    let first = buffer.slice(..4);
    buffer.grow(more)?;
    first.to_vec(stream)
}

fn main() {}

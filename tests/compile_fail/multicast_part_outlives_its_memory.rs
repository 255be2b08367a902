//! A part is one of memory that is there.
use gpucomm::cuda::multicast::Part;
use gpucomm::cuda::vmm::PhysicalMemory;
use gpucomm::{Device, Result};

fn part<'m>(device: Device) -> Result<Part<'m>> {
    let memory = PhysicalMemory::new(device, 2 << 20)?;
    Ok(Part::memory(&memory))
}

fn main() {}

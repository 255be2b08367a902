//! Who else has the memory nobody sees.
use gpucomm::cuda::vmm::PhysicalMemory;
use gpucomm::{Device, Result};

fn take(device: Device, theirs: u64) -> Result<PhysicalMemory> {
    PhysicalMemory::from_raw(device, theirs, 2 << 20)
}

fn main() {}

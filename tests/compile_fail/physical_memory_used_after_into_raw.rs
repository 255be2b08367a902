//! What was given away is not ours any more.
use gpucomm::Result;
use gpucomm::cuda::vmm::{Access, PhysicalMemory};

fn give(memory: PhysicalMemory) -> Result<u64> {
    let raw = memory.into_raw()?;
    let _mapping = memory.map(&[Access::read_write(gpucomm::Device::new(0)?)])?;
    Ok(raw)
}

fn main() {}

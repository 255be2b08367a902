//! Mapped memory is the mapping's.
use gpucomm::cuda::vmm::{Access, PhysicalMemory};
use gpucomm::{Device, Result};

fn map(device: Device) -> Result<()> {
    let memory = PhysicalMemory::new(device, 2 << 20)?;
    let _mapping = memory.map(&[Access::read_write(device)])?;
    let _again = memory.map(&[Access::read_write(device)])?;
    Ok(())
}

fn main() {}

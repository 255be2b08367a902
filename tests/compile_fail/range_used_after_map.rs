//! Addresses where something is mapped are the mapping's.
use gpucomm::cuda::vmm::{Access, AddressRange, PhysicalMemory};
use gpucomm::{Device, Result};

fn map(device: Device) -> Result<()> {
    let range = AddressRange::reserve(4 << 20)?;
    let _first = range.map(PhysicalMemory::new(device, 2 << 20)?, &[Access::read_write(device)])?;
    let _second = range.map(PhysicalMemory::new(device, 2 << 20)?, &[Access::read_write(device)])?;
    Ok(())
}

fn main() {}

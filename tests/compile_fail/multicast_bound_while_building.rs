//! Memory cannot be bound before all devices were added: the driver would block.
use gpucomm::Result;
use gpucomm::cuda::multicast::{Building, Multicast, Part};
use gpucomm::cuda::vmm::PhysicalMemory;

fn bind(building: Multicast<Building>, memory: &PhysicalMemory) -> Result<()> {
    building.bind(Part::memory(memory))?;
    Ok(())
}

fn main() {}

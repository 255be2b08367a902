//! An object cannot be mapped before all devices were added: the driver would block.
use gpucomm::Result;
use gpucomm::cuda::multicast::{Building, Multicast};

fn map(building: Multicast<Building>) -> Result<()> {
    building.map()?;
    Ok(())
}

fn main() {}

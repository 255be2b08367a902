//! What was building is complete, and no longer building.
use gpucomm::cuda::multicast::{Building, Multicast};
use gpucomm::{Device, Result};

fn add(mut building: Multicast<Building>, device: Device) -> Result<()> {
    let _complete = building.complete()?;
    building.add(device)
}

fn main() {}

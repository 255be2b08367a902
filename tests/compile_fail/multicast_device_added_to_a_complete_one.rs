//! Devices are added while the object is building.
use gpucomm::cuda::multicast::{Complete, Multicast};
use gpucomm::{Device, Result};

fn add(complete: &mut Multicast<Complete>, device: Device) -> Result<()> {
    complete.add(device)
}

fn main() {}

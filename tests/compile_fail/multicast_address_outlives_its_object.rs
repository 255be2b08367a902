//! An address is good as long as its object.
use gpucomm::cuda::multicast::{Mapped, McPtr, Multicast};
use gpucomm::{Device, Result};

fn address<'m>(mapped: Multicast<Mapped>, device: Device) -> Result<McPtr<'m, f32>> {
    mapped.ptr(device)
}

fn main() {}

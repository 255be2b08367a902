//! There is no address before the object is mapped.
use gpucomm::cuda::multicast::{Bound, Multicast};
use gpucomm::{Device, Result};

fn address(bound: &Multicast<Bound>, device: Device) -> Result<usize> {
    Ok(bound.ptr::<f32>(device)?.len())
}

fn main() {}

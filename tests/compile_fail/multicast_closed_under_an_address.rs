//! While there is an address, the object is not closed.
use gpucomm::cuda::multicast::{Mapped, Multicast};
use gpucomm::{Device, Result};

fn close(mapped: Multicast<Mapped>, device: Device) -> Result<usize> {
    let all = mapped.ptr::<f32>(device)?;
    mapped.close()?;
    Ok(all.len())
}

fn main() {}

//! While there is an address, nothing is unbound.
use gpucomm::cuda::multicast::{Mapped, Multicast};
use gpucomm::{Device, Result};

fn unbind(mapped: &mut Multicast<Mapped>, device: Device) -> Result<usize> {
    let all = mapped.ptr::<f32>(device)?;
    mapped.unbind(device, 0)?;
    Ok(all.len())
}

fn main() {}

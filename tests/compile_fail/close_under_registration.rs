//! A communicator cannot be closed while it has memory registered.
use gpucomm::{Communicator, DeviceBuffer, Result};

fn order(comm: Communicator, buffer: &DeviceBuffer<f32>) -> Result<bool> {
    let registered = comm.register(buffer)?;
    comm.close(gpucomm::default_timeout())?;
    Ok(registered.without_effect().is_none())
}

fn main() {}

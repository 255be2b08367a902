//! A communicator cannot be closed while it has a window.
use gpucomm::{Communicator, DeviceBuffer, Result};

fn order(comm: Communicator, buffer: &DeviceBuffer<f32>) -> Result<bool> {
    let window = comm.window(buffer)?;
    comm.close(gpucomm::default_timeout())?;
    Ok(window.unsupported().is_none())
}

fn main() {}

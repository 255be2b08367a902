//! A window cannot outlive its communicator.
use gpucomm::nccl::Window;
use gpucomm::{Communicator, DeviceBuffer, Result};

fn leak<'a>(comm: Communicator, buffer: &DeviceBuffer<f32>) -> Result<Window<'a>> {
    comm.window(buffer)
}

fn main() {}

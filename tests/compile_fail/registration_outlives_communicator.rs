//! A registration cannot outlive its communicator.
use gpucomm::nccl::Registration;
use gpucomm::{Communicator, DeviceBuffer, Result};

fn leak<'a>(comm: Communicator, buffer: &DeviceBuffer<f32>) -> Result<Registration<'a>> {
    comm.register(buffer)
}

fn main() {}

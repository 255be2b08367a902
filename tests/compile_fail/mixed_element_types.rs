//! Both sides of an operation have one element type.
use gpucomm::{Communicator, DeviceBuffer, ReduceOp, Result, Stream};

fn mix(comm: &Communicator, x: &DeviceBuffer<f32>, y: &mut DeviceBuffer<i32>, stream: &Stream) -> Result<()> {
    comm.all_reduce((x, y), ReduceOp::Sum, stream)
}

fn main() {}

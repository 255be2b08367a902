//! Memory of the host to read from.

use gpucomm::{Communicator, DeviceBuffer, ReduceOp, Result, Stream};

fn sum(comm: &Communicator, x: &Vec<f32>, y: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    comm.all_reduce((x, y), ReduceOp::Sum, stream)
}

fn main() {}

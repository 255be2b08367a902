//! One buffer that is both read and written, without `InPlace`.

use gpucomm::{Communicator, DeviceBuffer, ReduceOp, Result, Stream};

fn sum(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    comm.all_reduce(x, ReduceOp::Sum, stream)
}

fn main() {}

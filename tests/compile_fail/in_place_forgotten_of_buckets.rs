//! Buffers that are both read and written, without `InPlace`.

use gpucomm::{Communicator, DeviceBuffer, ReduceOp, Result, Stream};

fn average(comm: &Communicator, gradients: &mut [DeviceBuffer<f32>], stream: &Stream) -> Result<()> {
    comm.all_reduce_many(gradients.iter_mut(), ReduceOp::Avg, stream)
}

fn main() {}

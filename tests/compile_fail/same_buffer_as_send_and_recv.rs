//! One buffer cannot be both sides of an operation that is not in place.
use gpucomm::{Communicator, DeviceBuffer, ReduceOp, Result, Stream};

fn alias(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    comm.all_reduce((&*x, &mut *x), ReduceOp::Sum, stream)
}

fn main() {}

//! In place writes, so that it needs a mutable borrow.
use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream};

fn shared(comm: &Communicator, x: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    comm.all_reduce(InPlace(x), ReduceOp::Sum, stream)
}

fn main() {}

//! A buffer that a recorded operation writes stays borrowed until the group ends.
use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream, group};

fn peek(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    group(|g| {
        g.all_reduce(comm, InPlace(&mut *x), ReduceOp::Sum, stream)?;
        x.fill(stream, 0.0)
    })
}

fn main() {}

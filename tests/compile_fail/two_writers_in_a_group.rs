//! Two operations of one group cannot write the same buffer.
use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream, group};

fn twice(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    group(|g| {
        g.all_reduce(comm, InPlace(&mut *x), ReduceOp::Sum, stream)?;
        g.all_reduce(comm, InPlace(&mut *x), ReduceOp::Sum, stream)
    })
}

fn main() {}

//! A buffer that dies within the closure cannot be recorded: the operation is submitted after the closure.
use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream, group};

fn short(comm: &Communicator, stream: &Stream) -> Result<()> {
    group(|g| {
        let mut x = DeviceBuffer::<f32>::zeroed(stream, 8)?;
        g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)
    })
}

fn main() {}

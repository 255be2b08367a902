//! Nor has it any of bools, by whatever reduction.
use gpucomm::{Communicator, DeviceBuffer, ReduceOp, Result, SendOnly, Stream, group};

fn all(comm: &Communicator, x: &DeviceBuffer<bool>, stream: &Stream) -> Result<()> {
    group(|g| g.reduce(comm, SendOnly(x), ReduceOp::Min, 0, stream))
}

fn main() {}

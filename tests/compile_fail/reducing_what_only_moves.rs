//! NCCL has no sums of 16-bit integers.
use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream};

fn sum(comm: &Communicator, x: &mut DeviceBuffer<u16>, stream: &Stream) -> Result<()> {
    comm.all_reduce(InPlace(x), ReduceOp::Sum, stream)
}

fn main() {}

//! A mapping has no type and no elements: an operation takes the buffer that is made of it.
use gpucomm::cuda::vmm::Mapping;
use gpucomm::{Communicator, InPlace, ReduceOp, Result, Stream};

fn reduce(comm: &Communicator, mut mapping: Mapping, stream: &Stream) -> Result<()> {
    comm.all_reduce(InPlace(&mut mapping), ReduceOp::Sum, stream)
}

fn main() {}

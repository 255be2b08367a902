//! Memory of the host to read from and write to.

use gpucomm::{Communicator, InPlace, ReduceOp, Result, Stream};

fn sum(comm: &Communicator, x: &mut Vec<f32>, stream: &Stream) -> Result<()> {
    comm.all_reduce(InPlace(x), ReduceOp::Sum, stream)
}

fn main() {}

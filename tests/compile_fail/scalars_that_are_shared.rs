//! A slice is reduced where it is.
use gpucomm::{Communicator, ReduceOp, Result, Stream};

fn sums(comm: &Communicator, stream: &Stream, values: &[f32]) -> Result<()> {
    comm.all_reduce_scalars(values, ReduceOp::Sum, stream)?;
    Ok(())
}

fn main() {}

//! An operator made of a double does not reduce singles.
use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream};

fn mix(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    let operator = comm.pre_mul_sum(2.0f64)?;
    comm.all_reduce(InPlace(x), ReduceOp::PreMul(&operator), stream)
}

fn main() {}

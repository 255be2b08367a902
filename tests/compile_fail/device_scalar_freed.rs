//! A scalar on the device lives as long as the operator that reads it.
use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream};

fn order(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    let scalar = DeviceBuffer::from_slice(stream, &[2.0f32])?;
    let operator = comm.pre_mul_sum_device(&scalar)?;
    drop(scalar);
    comm.all_reduce(InPlace(x), ReduceOp::PreMul(&operator), stream)
}

fn main() {}

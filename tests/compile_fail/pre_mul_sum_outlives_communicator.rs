//! A reduction operator cannot outlive its communicator.
use gpucomm::nccl::PreMulSum;
use gpucomm::{Communicator, Result};

fn leak<'a>(comm: Communicator) -> Result<PreMulSum<'a, f32>> {
    comm.pre_mul_sum(2.0f32)
}

fn main() {}

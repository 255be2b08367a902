//! What is not reduced is not multiplied either.
use gpucomm::{Communicator, Result};

fn half(comm: &Communicator) -> Result<()> {
    comm.pre_mul_sum([0.5_f32, 0.5]).map(drop)
}

fn main() {}

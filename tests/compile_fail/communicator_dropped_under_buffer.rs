//! A communicator cannot be dropped while a buffer of it lives.
use gpucomm::{Communicator, Result, Stream};

fn order(comm: Communicator, stream: &Stream) -> Result<Vec<f32>> {
    let buffer = comm.alloc::<f32>(stream, 8)?;
    drop(comm);
    buffer.to_vec(stream)
}

fn main() {}

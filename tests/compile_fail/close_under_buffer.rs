//! A communicator cannot be closed while a buffer of it lives.
use gpucomm::{Communicator, Result, Stream};

fn order(comm: Communicator, stream: &Stream) -> Result<Vec<f32>> {
    let buffer = comm.alloc::<f32>(stream, 8)?;
    comm.close(gpucomm::default_timeout())?;
    buffer.to_vec(stream)
}

fn main() {}

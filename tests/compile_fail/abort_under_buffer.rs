//! A communicator cannot be consumed by `abort` while a buffer of it lives; an `Aborter` can.
use gpucomm::{Communicator, Result, Stream};

fn order(comm: Communicator, stream: &Stream) -> Result<Vec<f32>> {
    let buffer = comm.alloc::<f32>(stream, 8)?;
    let _ = comm.abort("the test says so");
    buffer.to_vec(stream)
}

fn main() {}

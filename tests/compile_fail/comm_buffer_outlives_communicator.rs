//! A buffer of a communicator cannot outlive it.
use gpucomm::{CommBuffer, Communicator, Result, Stream};

fn leak<'a>(comm: Communicator, stream: &Stream) -> Result<CommBuffer<'a, f32>> {
    comm.alloc::<f32>(stream, 8)
}

fn main() {}

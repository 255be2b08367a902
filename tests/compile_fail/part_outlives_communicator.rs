//! A part of a buffer of a communicator borrows that as the whole did.
use gpucomm::{Communicator, Result, Stream};

fn parts(comm: Communicator, stream: &Stream) -> Result<()> {
    let (left, _right) = comm.alloc::<f32>(stream, 8)?.into_split(4);
    drop(comm);
    left.to_vec(stream).map(drop)
}

fn main() {}

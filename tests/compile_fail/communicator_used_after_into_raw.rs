//! What was given away is not ours any more.
use gpucomm::{Communicator, Result, Stream};

fn give(comm: Communicator, stream: &Stream) -> Result<()> {
    let _raw = comm.into_raw()?;
    comm.barrier(stream)
}

fn main() {}

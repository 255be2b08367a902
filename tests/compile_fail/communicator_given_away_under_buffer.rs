//! A buffer needs its communicator.
use gpucomm::{Communicator, Result, Stream};

fn give(comm: Communicator, stream: &Stream) -> Result<()> {
    let buffer = comm.alloc::<f32>(stream, 10)?;
    let _raw = comm.into_raw()?;
    drop(buffer);
    Ok(())
}

fn main() {}

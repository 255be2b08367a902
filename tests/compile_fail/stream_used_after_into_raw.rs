//! What was given away is not ours any more.
use gpucomm::{Result, Stream, sys};

fn give(stream: Stream) -> Result<sys::cudaStream_t> {
    let raw = stream.into_raw()?;
    stream.synchronize()?;
    Ok(raw)
}

fn main() {}

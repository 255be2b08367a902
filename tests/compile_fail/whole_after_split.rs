//! What was split is its parts, and the whole is gone.
use gpucomm::{CommBuffer, Result, Stream};

fn use_whole(mut x: CommBuffer<'_, f32>, stream: &Stream) -> Result<()> {
    let parts = x.into_split(4);
    x.fill(stream, 1.0)?;
    drop(parts);
    Ok(())
}

fn main() {}

//! What was joined is one buffer, and its parts are gone.
use gpucomm::{DeviceBuffer, Result, Stream};

fn use_part(x: DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    let (left, mut right) = x.into_split(4);
    let whole = left.join(right)?;
    right.fill(stream, 1.0)?;
    drop(whole);
    Ok(())
}

fn main() {}

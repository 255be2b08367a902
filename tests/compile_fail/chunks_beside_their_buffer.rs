//! A buffer is borrowed as long as one of its chunks may be written.
use gpucomm::{DeviceBuffer, Result, Stream};

fn both(x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    let first = x.chunks_mut(4).next();
    x.fill(stream, 0.0)?;
    first.map_or(Ok(()), |mut first| first.fill(stream, 1.0))
}

fn main() {}

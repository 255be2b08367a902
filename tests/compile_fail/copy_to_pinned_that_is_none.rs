//! Memory of the host that is not pinned is copied to by another method, which the message names.
use gpucomm::{DeviceBuffer, Result, Stream};

fn values(x: &DeviceBuffer<f32>, stream: &Stream) -> Result<Vec<f32>> {
    let mut values = vec![0.0; x.len()];
    x.copy_to_pinned(stream, &mut values)?;
    Ok(values)
}

fn main() {}

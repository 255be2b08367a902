//! A view cannot outlive its buffer.
use gpucomm::{DeviceBuffer, Result, Stream};

fn view(stream: &Stream) -> Result<Vec<f32>> {
    let slice = {
        let buffer = DeviceBuffer::<f32>::zeroed(stream, 8)?;
        buffer.slice(0..4)
    };
    slice.to_vec(stream)
}

fn main() {}

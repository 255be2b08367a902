//! What the host looks at, no copy may write.
use gpucomm::{DeviceBuffer, PinnedBuffer, Result, Stream};

fn peek(x: &DeviceBuffer<f32>, pinned: &mut PinnedBuffer<f32>, stream: &Stream) -> Result<f32> {
    let values = pinned.slice(..4).as_slice()?;
    x.copy_to_pinned(stream, pinned.slice_mut(..4))?;
    Ok(values[0])
}

fn main() {}

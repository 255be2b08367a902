//! What the host sees of pinned memory cannot be held while a copy into it is enqueued.
use gpucomm::{DeviceBuffer, PinnedBuffer, Result, Stream};

fn held(x: &DeviceBuffer<f32>, pinned: &mut PinnedBuffer<f32>, stream: &Stream) -> Result<f32> {
    let seen = pinned.as_slice()?;
    x.copy_to_pinned(stream, pinned)?;
    Ok(seen[0])
}

fn main() {}

//! Two buffers over the same memory are a promise: nobody looks for them in a call.
use gpucomm::{DeviceBuffer, Result, Stream};

fn alias(stream: &Stream) -> Result<()> {
    let buffer = DeviceBuffer::<f32>::zeroed(stream, 8)?;
    let _part = buffer.alias(0..4)?;
    Ok(())
}

fn main() {}

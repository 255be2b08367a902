//! What a bracket lends is good within its closure only.
use gpucomm::{DeviceBuffer, Result, Stream};

fn keep(stream: &Stream, x: &DeviceBuffer<f32>) -> Result<*const f32> {
    let mut kept = None;
    stream.launch(x, |_, x| kept = Some(x))?;
    Ok(kept.unwrap().as_ptr())
}

fn main() {}

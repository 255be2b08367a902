//! What is lent by `&` has no address to write to.
use gpucomm::{DeviceBuffer, Result, Stream};

fn launch(stream: &Stream, x: &DeviceBuffer<f32>) -> Result<*mut f32> {
    stream.launch(x, |_, mut x| x.as_mut_ptr())
}

fn main() {}

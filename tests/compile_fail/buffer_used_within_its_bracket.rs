//! A buffer that is lent to be written is used by nothing else meanwhile, such as a copy within the closure.
use gpucomm::{DeviceBuffer, Result, Stream};

fn launch(stream: &Stream, x: &mut DeviceBuffer<f32>) -> Result<Vec<f32>> {
    stream.launch(&mut *x, |_, _| x.to_vec(stream))?
}

fn main() {}

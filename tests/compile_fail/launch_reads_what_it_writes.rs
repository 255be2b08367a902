//! One buffer is not lent to be read and to be written: what is lent by `&mut` may be read as well.
use gpucomm::{DeviceBuffer, Result, Stream};

fn launch(stream: &Stream, x: &mut DeviceBuffer<f32>) -> Result<()> {
    stream.launch((&*x, &mut *x), |_, _| ())
}

fn main() {}

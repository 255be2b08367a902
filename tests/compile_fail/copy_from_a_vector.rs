//! Memory of the host in a copy between devices.

use gpucomm::{DeviceBuffer, Result, Stream};

fn fill(x: &mut DeviceBuffer<f32>, values: &Vec<f32>, stream: &Stream) -> Result<()> {
    x.copy_from(stream, values)
}

fn main() {}

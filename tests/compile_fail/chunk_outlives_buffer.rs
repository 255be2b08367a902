//! Chunks are views, and none outlives what it shows.
use gpucomm::cuda::Slice;
use gpucomm::{DeviceBuffer, Stream};

fn chunk(stream: &Stream) -> Option<Slice<'static, f32>> {
    let x = DeviceBuffer::zeroed(stream, 8).ok()?;
    x.chunks(4).next()
}

fn main() {}

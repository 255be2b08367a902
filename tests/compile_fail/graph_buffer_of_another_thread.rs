//! A capture borrows what it captures, like any other use: not while another thread writes to it.
use gpucomm::{DeviceBuffer, Graph, Result, Stream};

fn capture(stream: &Stream, other: &Stream, x: &mut DeviceBuffer<f32>) -> Result<Graph> {
    std::thread::scope(|scope| {
        scope.spawn(|| x.fill(other, 1.0));
        stream.capture(|lent| x.fill(lent, 2.0))
    })
}

fn main() {}

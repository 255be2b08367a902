//! Not every bit pattern is a char.
use gpucomm::{DeviceBuffer, Stream};

fn chars(stream: &Stream) {
    let _ = DeviceBuffer::from_slice(stream, &['a', 'b']);
}

fn main() {}

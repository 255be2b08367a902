//! Not every bit pattern is a bool.
use gpucomm::{DeviceBuffer, Stream};

fn bools(stream: &Stream) {
    let _ = DeviceBuffer::<bool>::zeroed(stream, 8);
}

fn main() {}

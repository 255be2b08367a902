//! What holds an address of the host means nothing on a device.
use gpucomm::{DeviceBuffer, Stream};

fn texts(stream: &Stream) {
    let _ = DeviceBuffer::<&str>::uninit(stream, 8);
}

fn main() {}

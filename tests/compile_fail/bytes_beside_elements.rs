//! Bytes that may be written are the elements, too.
use gpucomm::{DeviceBuffer, Result, Stream};

fn both(x: &mut DeviceBuffer<bool>, stream: &Stream) -> Result<()> {
    let mut bytes = x.as_bytes_mut();
    x.fill(stream, true)?;
    bytes.fill(stream, 0)
}

fn main() {}

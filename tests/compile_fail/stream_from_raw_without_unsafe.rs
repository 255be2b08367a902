//! Nobody but the caller knows how long a stream of another library lives.
use gpucomm::{Device, Stream, sys};

fn take(device: Device, raw: sys::cudaStream_t) -> Stream {
    Stream::from_raw(device, raw)
}

fn main() {}

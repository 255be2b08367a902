//! The owner of a stream is dropped when nothing needs the stream any more, which may be later than anything it borrows.
use gpucomm::{Device, Result, Stream, sys};

fn take(device: Device, raw: sys::cudaStream_t, theirs: &Vec<u8>) -> Result<Stream> {
    // SAFETY: the case is about the owner.
    unsafe { Stream::from_raw_with(device, raw, theirs) }
}

fn main() {}

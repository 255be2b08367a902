//! Streams of a rank: the crate's own, those of another library, and the null stream of the device.

use gpucomm::{Communicator, Device, Result, Stream, sys};

/// What another library has: a stream that goes with it.
struct Theirs(sys::cudaStream_t);

// SAFETY: CUDA takes streams from any thread.
unsafe impl Send for Theirs {}

impl Theirs {
    fn new(device: Device) -> Result<Self> {
        let _current = device.set_current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes a handle to the place given.
        let code = unsafe { sys::cudaStreamCreateWithPriority(&raw mut raw, sys::cudaStreamNonBlocking, 0) };
        assert_eq!(code, sys::cudaError::cudaSuccess);
        Ok(Self(raw))
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        // SAFETY: made above, and destroyed once. Where its device is lost, so is the stream.
        let _ = unsafe { sys::cudaStreamDestroy(self.0) };
    }
}

/// Stream number `which` of a rank.
pub fn make(comm: &Communicator, which: usize) -> Result<Stream> {
    let device = comm.device();
    match (which + comm.rank()) % 8 {
        1 => {
            let theirs = Theirs::new(device)?;
            // SAFETY: the stream lives until its owner is dropped.
            unsafe { Stream::from_raw_with(device, theirs.0, theirs) }
        }
        2 => {
            let null = Stream::null(device);
            // Programs before this one had it too, and some have failed.
            null.accept();
            Ok(null)
        }
        _ => Stream::new(device),
    }
}

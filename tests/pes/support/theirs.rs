//! Streams that this crate has not made.

use gpucomm::{Device, sys};

/// One that blocks no other.
#[derive(Debug)]
pub struct Theirs(pub sys::cudaStream_t);

// SAFETY: streams may be used from any thread.
unsafe impl Send for Theirs {}
// SAFETY: as above.
unsafe impl Sync for Theirs {}

impl Theirs {
    pub fn new(device: Device) -> Self {
        let _current = device.set_current().expect("the device");
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes a handle to the place given.
        let code = unsafe { sys::cudaStreamCreateWithPriority(&raw mut raw, sys::cudaStreamNonBlocking, 0) };
        assert_eq!(code, sys::cudaError::cudaSuccess);
        Self(raw)
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        // SAFETY: made above, and destroyed once.
        let _ = unsafe { sys::cudaStreamDestroy(self.0) };
    }
}

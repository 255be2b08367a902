//! A view of memory of others cannot outlive what it belongs to.
use gpucomm::cuda::Slice;
use gpucomm::{Device, Result, Stream};

fn view(device: Device, ptr: *mut std::ffi::c_void, stream: &Stream) -> Result<Vec<f32>> {
    let slice = {
        let tensor = vec![0u8; 32];
        // SAFETY: the case is about the owner.
        unsafe { Slice::<f32>::from_raw_parts(&tensor, device, ptr, 8)? }
    };
    slice.to_vec(stream)
}

fn main() {}

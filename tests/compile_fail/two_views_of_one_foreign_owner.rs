//! Who may write through a view of memory of others has its owner to himself.
use gpucomm::cuda::{Slice, SliceMut};
use gpucomm::{Device, Result, Stream};

fn copy(device: Device, tensor: &mut Vec<u8>, ptr: *mut std::ffi::c_void, stream: &Stream) -> Result<()> {
    // SAFETY: the case is about the owner.
    let (mut to, from) = unsafe {
        (
            SliceMut::<f32>::from_raw_parts(tensor, device, ptr, 8)?,
            Slice::<f32>::from_raw_parts(tensor, device, ptr, 8)?,
        )
    };
    to.copy_from(stream, from)
}

fn main() {}

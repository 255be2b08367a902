//! Slices, views, chunks, and memory of others.
#![allow(dead_code)]

mod buffer_used_within_its_bracket {
    //! A buffer that is lent to be written is used by nothing else meanwhile, such as a copy within the closure.
    use gpucomm::{DeviceBuffer, Result, Stream};

    fn launch(stream: &Stream, x: &mut DeviceBuffer<f32>) -> Result<Vec<f32>> {
        stream.launch(&mut *x, |_, _| x.to_vec(stream))?
    }
}

mod chunk_outlives_buffer {
    //! Chunks are views, and none outlives what it shows.
    use gpucomm::cuda::Slice;
    use gpucomm::{DeviceBuffer, Stream};

    fn chunk(stream: &Stream) -> Option<Slice<'static, f32>> {
        let x = DeviceBuffer::zeroed(stream, 8).ok()?;
        x.chunks(4).next()
    }
}

mod chunks_beside_their_buffer {
    //! A buffer is borrowed as long as one of its chunks may be written.
    use gpucomm::{DeviceBuffer, Result, Stream};

    fn both(x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        let first = x.chunks_mut(4).next();
        x.fill(stream, 0.0)?;
        first.map_or(Ok(()), |mut first| first.fill(stream, 1.0))
    }
}

mod foreign_owner_borrows {
    //! An owner is dropped when the device is done, which may be later than anything it borrows.
    use gpucomm::{Device, DeviceBuffer, Result};

    fn take(device: Device, tensor: &Vec<u8>, ptr: *mut std::ffi::c_void) -> Result<DeviceBuffer<f32>> {
        // SAFETY: the case is about the owner.
        unsafe { DeviceBuffer::from_raw_parts(device, ptr, 8, tensor) }
    }
}

mod foreign_owner_of_one_thread {
    //! An owner may be dropped by a thread of the crate.
    use std::rc::Rc;

    use gpucomm::{Device, DeviceBuffer, Result};

    fn take(device: Device, tensor: Rc<Vec<u8>>, ptr: *mut std::ffi::c_void) -> Result<DeviceBuffer<f32>> {
        // SAFETY: the case is about the owner.
        unsafe { DeviceBuffer::from_raw_parts(device, ptr, 8, tensor) }
    }
}

mod overlapping_slices {
    //! Two mutable views of one buffer need `split_at_mut`.
    use gpucomm::{Communicator, DeviceBuffer, Result, Stream};

    fn overlap(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        let first = x.slice_mut(0..4);
        let second = x.slice_mut(4..8);
        comm.recv(first, 0, stream)?;
        comm.recv(second, 0, stream)
    }
}

mod slice_mut_used_twice {
    //! A mutable view is used up by an operation, unless it is reborrowed.
    use gpucomm::{Communicator, DeviceBuffer, Result, Stream};

    fn twice(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        let view = x.slice_mut(0..4);
        comm.recv(view, 0, stream)?;
        comm.recv(view, 0, stream)
    }
}

mod slice_outlives_buffer {
    //! A view cannot outlive its buffer.
    use gpucomm::{DeviceBuffer, Result, Stream};

    fn view(stream: &Stream) -> Result<Vec<f32>> {
        let slice = {
            let buffer = DeviceBuffer::<f32>::zeroed(stream, 8)?;
            buffer.slice(0..4)
        };
        slice.to_vec(stream)
    }
}

mod two_views_of_one_foreign_owner {
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
}

mod view_outlives_foreign_owner {
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
}

mod whole_after_split {
    //! What was split is its parts, and the whole is gone.
    use gpucomm::{CommBuffer, Result, Stream};

    fn use_whole(mut x: CommBuffer<'_, f32>, stream: &Stream) -> Result<()> {
        let parts = x.into_split(4);
        x.fill(stream, 1.0)?;
        drop(parts);
        Ok(())
    }
}

fn main() {}

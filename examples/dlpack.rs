//! Tensors of another library through a collective and back: each rank sums a tensor that it was given over all ranks, in place, and gives it back.
//!
//! Here the other library is a few lines that keep memory of their own. That of a real one comes as a pointer in a capsule of Python, or from its C
//! interface (`at::toDLPack`), and goes the same way.
//!
//! Without a GPU: `cargo run --example dlpack --features dlpack,emulator`.

use std::time::Duration;

use dlpark::ffi::DLManagedTensorVersioned;
use dlpark::versioned::Dlpack;
use gpucomm::cuda::Slice;
use gpucomm::{Clique, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream};

const SHAPE: [usize; 2] = [30, 70];

fn main() -> Result<()> {
    let clique = Clique::init_all(&Device::all()?)?;
    clique.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let raw = theirs(&stream, comm.rank())?;

        // SAFETY: the pointer belongs to us now, and nobody else has it.
        let tensor = unsafe { Dlpack::from_raw(raw) }.map_err(refused)?;
        // SAFETY: nobody else uses the memory, and the stream is behind what wrote it.
        let mut x = unsafe { DeviceBuffer::<f32>::from_dlpack(tensor)? };
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
        // What others copy tells them of no operation that has failed.
        stream.synchronize_timeout(Duration::from_secs(30))?;

        // Their tensor again, with its shape; `stream` is the one that they use it on, or come after.
        let tensor: Dlpack = x.into_dlpack(&stream, &SHAPE)?;
        let sum = look(&tensor, &stream)?;
        let expected: usize = (0..comm.size()).map(|rank| rank + 1).sum();
        assert_eq!(sum, vec![expected as f32; SHAPE[0] * SHAPE[1]]);
        // The deleter: the memory is freed behind what `stream` was given.
        drop(tensor);
        Ok(())
    })?;
    println!("{} ranks have summed tensors of shape {SHAPE:?}: all sums are right", clique.size());
    Ok(())
}

/// A tensor of another library, as a pointer that belongs to whoever gets it: full of the rank, and one.
fn theirs(stream: &Stream, rank: usize) -> Result<*mut DLManagedTensorVersioned> {
    let memory = DeviceBuffer::from_slice(stream, &vec![(rank + 1) as f32; SHAPE[0] * SHAPE[1]])?;
    let tensor: Dlpack = memory.into_dlpack(stream, &SHAPE)?;
    Ok(tensor.into_raw())
}

/// What the other library sees in a tensor that it was given.
fn look(tensor: &Dlpack, stream: &Stream) -> Result<Vec<f32>> {
    let view = tensor.validate().map_err(refused)?;
    assert_eq!(view.shape(), SHAPE.map(|len| len as i64));
    let device = Device::new(usize::try_from(view.device().device_id).expect("a number"))?;
    // SAFETY: so many elements lie there until the tensor is deleted, which comes behind what the stream is given here.
    let x = unsafe { Slice::<f32>::from_raw_parts(tensor, device, view.data_ptr(), view.num_elements())? };
    x.to_vec(stream)
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::InvalidUsage { operation: "dlpack", reason: error.to_string() }
}

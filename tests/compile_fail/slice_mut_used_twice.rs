//! A mutable view is used up by an operation, unless it is reborrowed.
use gpucomm::{Communicator, DeviceBuffer, Result, Stream};

fn twice(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    let view = x.slice_mut(0..4);
    comm.recv(view, 0, stream)?;
    comm.recv(view, 0, stream)
}

fn main() {}

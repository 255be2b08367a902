//! Two mutable views of one buffer need `split_at_mut`.
use gpucomm::{Communicator, DeviceBuffer, Result, Stream};

fn overlap(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    let first = x.slice_mut(0..4);
    let second = x.slice_mut(4..8);
    comm.recv(first, 0, stream)?;
    comm.recv(second, 0, stream)
}

fn main() {}

//! Pinned memory of the host to write to.

use gpucomm::{Communicator, DeviceBuffer, PinnedBuffer, Result, Stream};

fn gather(comm: &Communicator, x: &DeviceBuffer<f32>, y: &mut PinnedBuffer<f32>, stream: &Stream) -> Result<()> {
    comm.all_gather((x, y), stream)
}

fn main() {}

//! One buffer that is both read and written, without `InPlace`, in a group.

use gpucomm::{Communicator, DeviceBuffer, Result, Stream, group};

fn share(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    group(|g| g.broadcast(comm, &mut *x, 0, stream))
}

fn main() {}

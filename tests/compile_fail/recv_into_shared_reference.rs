//! A receive writes, so that it needs a mutable borrow.
use gpucomm::{Communicator, DeviceBuffer, Result, Stream};

fn shared(comm: &Communicator, x: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    comm.recv(x, 0, stream)
}

fn main() {}

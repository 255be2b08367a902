//! A chunk that one operation of a group writes is no other's.
use gpucomm::{Communicator, DeviceBuffer, Result, Stream, group};

fn twice(comm: &Communicator, x: &mut DeviceBuffer<u16>, stream: &Stream) -> Result<()> {
    group(|g| {
        for (peer, part) in x.chunks_mut(4).enumerate() {
            g.recv(comm, part, peer, stream)?;
            g.recv(comm, part, peer, stream)?;
        }
        Ok(())
    })
}

fn main() {}

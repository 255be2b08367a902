//! Ring exchange: each rank sends to the next and receives from the one before, at the same time.
//!
//! Every rank starts with a token that holds its number. After as many steps as there are ranks, each token has been
//! everywhere and is back home. A send and the receive that belongs to it must not wait for one another, so both go
//! into one group.
//!
//! Without a GPU: `cargo run --example ring --features emulator`.

use gpucomm::{Clique, Device, DeviceBuffer, Result, Stream, group};

const LEN: usize = 1000;

fn main() -> Result<()> {
    let mut devices = Device::all()?;
    devices.truncate(4);
    let clique = Clique::init_all(&devices)?;

    let seen = clique.spmd(|comm| {
        let (rank, size) = (comm.rank(), comm.size());
        let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
        let stream = Stream::new(comm.device())?;
        let mut token = DeviceBuffer::from_slice(&stream, &[rank as i32; LEN])?;
        let mut incoming = DeviceBuffer::zeroed(&stream, LEN)?;

        let mut seen = Vec::new();
        for _ in 0..size {
            group(|g| {
                g.send(comm, &token, next, &stream)?;
                g.recv(comm, &mut incoming, previous, &stream)
            })?;
            // Only the two handles change places. The stream keeps the order, so nothing has to be waited for.
            std::mem::swap(&mut token, &mut incoming);
            seen.push(token.to_vec(&stream)?);
        }
        Ok(seen)
    })?;

    let size = clique.size();
    for (rank, tokens) in seen.iter().enumerate() {
        for (step, token) in tokens.iter().enumerate() {
            let from = (rank + size - 1 - step) % size;
            assert!(
                token.iter().all(|&value| value == from as i32),
                "rank {rank}, step {step}: not the token of {from}"
            );
        }
    }
    println!("{size} tokens went round the ring and came home");
    Ok(())
}

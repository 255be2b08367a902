//! Groups: several operations that are submitted together.
//!
//! A group is a closure that only records. When it returns `Ok`, all operations go to NCCL at once; when it returns an
//! error or panics, none does. So one thread can drive all GPUs, which without a group would wait for its own later
//! calls.
//!
//! Without a GPU: `cargo run --example groups --features emulator`.

use gpucomm::{Clique, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, group};

fn main() -> Result<()> {
    let mut devices = Device::all()?;
    devices.truncate(4);
    let clique = Clique::init_all(&devices)?;
    let size = clique.size();

    // A stream and two buffers on each GPU, all owned by this one thread.
    let mut state = Vec::new();
    for comm in clique.ranks() {
        let stream = Stream::new(comm.device())?;
        let gradients = DeviceBuffer::from_slice(&stream, &[comm.rank() as f64 + 0.5; 100])?;
        let settings = DeviceBuffer::from_slice(&stream, &[comm.rank() as i64; 3])?;
        state.push((comm, stream, gradients, settings));
    }

    // Different operations on different buffers, for all ranks: one group.
    group(|g| {
        for (comm, stream, gradients, settings) in &mut state {
            g.all_reduce(comm, InPlace(gradients), ReduceOp::Sum, stream)?;
            g.broadcast(comm, InPlace(settings), 0, stream)?;
        }
        Ok(())
    })?;

    // A group that fails submits nothing: rank 0 would otherwise wait for the others for ever.
    let refused: Result<()> = group(|g| {
        let (comm, stream, gradients, _) = &mut state[0];
        g.all_reduce(comm, InPlace(gradients), ReduceOp::Sum, stream)?;
        Err(Error::InvalidUsage { operation: "example", reason: "changed my mind".to_owned() })
    });
    assert!(matches!(refused, Err(Error::InvalidUsage { .. })));

    let sum: f64 = (0..size).map(|rank| rank as f64 + 0.5).sum();
    for (comm, stream, gradients, settings) in &state {
        assert_eq!(gradients.to_vec(stream)?, [sum; 100], "rank {}", comm.rank());
        assert_eq!(settings.to_vec(stream)?, [0; 3], "rank {}", comm.rank());
    }
    println!("one thread drove {size} ranks: sums are {sum}, settings are those of rank 0");
    Ok(())
}

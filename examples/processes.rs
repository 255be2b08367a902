//! A group of processes, one rank each, that exchange the unique id by themselves.
//!
//! The first process is rank 0. It makes the id, starts this program again for each other rank, and writes the id to
//! their standard input. Across machines a file system, a socket or a launcher would carry it: 128 bytes, once.
//!
//! Without a GPU: `cargo run --example processes --features emulator`.

use std::error::Error;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use gpucomm::{Communicator, Device, DeviceBuffer, InPlace, ReduceOp, Stream, UniqueId};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [rank, size] = args.as_slice() {
        let mut id = [0; 128];
        std::io::stdin().read_exact(&mut id)?;
        return run(rank.parse()?, size.parse()?, &UniqueId::from_bytes(id));
    }

    let size = Device::all()?.len().min(4);
    let id = UniqueId::new()?;
    let mut others = Vec::new();
    for rank in 1..size {
        others.push(start(rank, size, &id)?);
    }
    let own = run(0, size, &id);
    for child in &mut others {
        if own.is_err() {
            child.kill()?;
        }
        let status = child.wait()?;
        assert!(own.is_err() || status.success(), "process {} failed: {status}", child.id());
    }
    own?;
    println!("{size} processes agree");
    Ok(())
}

/// Starts this program as `rank`, and tells it the id.
fn start(rank: usize, size: usize, id: &UniqueId) -> std::io::Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([rank.to_string(), size.to_string()])
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        pipe.write_all(id.as_bytes())?;
    }
    Ok(child)
}

/// What every rank does.
fn run(rank: usize, size: usize, id: &UniqueId) -> Result<(), Box<dyn Error>> {
    let device = Device::new(rank)?;
    // SAFETY: all ranks of this id run this function, so they issue the same operations in the same order, with the
    // same counts and types.
    let comm = unsafe { Communicator::init_rank(device, size, id, rank) }?;
    let stream = Stream::new(device)?;

    let mut sum = DeviceBuffer::from_slice(&stream, &[rank as u64; 1000])?;
    comm.all_reduce(InPlace(&mut sum), ReduceOp::Sum, &stream)?;
    let mut all = DeviceBuffer::zeroed(&stream, size)?;
    let mine = DeviceBuffer::from_slice(&stream, &[std::process::id()])?;
    comm.all_gather((&mine, &mut all), &stream)?;

    let expected = (0..size as u64).sum();
    assert!(sum.to_vec(&stream)?.iter().all(|&value| value == expected), "rank {rank}: wrong sum");
    let pids = all.to_vec(&stream)?;
    assert_eq!(pids[rank], std::process::id());
    if rank == 0 {
        println!("the processes are {pids:?}");
    }
    comm.close()?;
    Ok(())
}

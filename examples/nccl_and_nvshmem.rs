//! NCCL and NVSHMEM in one program, on the same devices: a buffer that all PEs have in common is summed by a communicator, and then put to a neighbour.
//!
//! Each rank is a process, and is the PE of the same number. They meet in a directory.
//!
//! Without a GPU: `cargo run --example nccl_and_nvshmem --features emulator,nvshmem`.

use std::error::Error;
use std::path::Path;
use std::process::{Child, Command};

use gpucomm::exchange::{Directory, Exchange};
use gpucomm::nvshmem::{Context, ContextOptions, Pe};
use gpucomm::{Communicator, Device, InPlace, ReduceOp, Stream, UniqueId};

const LEN: usize = 1 << 16;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [place, rank, size] = args.as_slice() {
        return run(Path::new(place), rank.parse()?, size.parse()?);
    }
    let size = Device::all()?.len().min(4);
    let place = std::env::temp_dir().join(format!("gpucomm-both-{}", std::process::id()));
    std::fs::create_dir_all(&place)?;
    let mut others = (1..size).map(|rank| start(&place, rank, size)).collect::<Result<Vec<_>, _>>()?;
    let own = run(&place, 0, size);
    for child in &mut others {
        if own.is_err() {
            child.kill()?;
        }
        let status = child.wait()?;
        assert!(own.is_err() || status.success(), "process {} failed: {status}", child.id());
    }
    std::fs::remove_dir_all(&place)?;
    own?;
    println!("{size} processes have summed and put");
    Ok(())
}

/// Starts this program as `rank`.
fn start(place: &Path, rank: usize, size: usize) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).arg(place).args([rank.to_string(), size.to_string()]).spawn()
}

/// What every process does.
fn run(place: &Path, rank: usize, size: usize) -> Result<(), Box<dyn Error>> {
    let exchange = Exchange::join(Directory::open(place, rank, size)?)?;
    let device = Device::new(rank)?;
    let id = UniqueId::shared(&exchange)?;
    // SAFETY: all ranks run this function: the same operations in the same order, with the same counts and types.
    let comm = unsafe { Communicator::init_rank(device, size, &id, rank) }?;
    // SAFETY: so do all PEs.
    let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_exchange(&exchange)) }?;
    let stream = Stream::new(device)?;

    // To NCCL, symmetric memory is memory of the device like any other.
    let mut sums = ctx.alloc::<f32>(LEN)?;
    let mut from_left = ctx.alloc::<f32>(LEN)?;
    sums.fill(&stream, rank as f32 + 1.0)?;
    comm.all_reduce(InPlace(&mut sums), ReduceOp::Sum, &stream)?;
    // The put comes behind it, on the same stream; the barrier behind the puts of all PEs.
    let right = Pe((rank + 1) % size);
    ctx.on(&stream).put(&from_left, &sums, right)?;
    ctx.on(&stream).barrier_all()?;

    let expected = (1..=size).sum::<usize>() as f32;
    assert!(sums.to_vec(&stream)?.iter().all(|&value| value == expected), "rank {rank}: wrong sum");
    assert!(from_left.to_vec(&stream)?.iter().all(|&value| value == expected), "rank {rank}: wrong put");
    // And the other way: what another PE has put is sent on by NCCL, in the order of the stream.
    from_left.fill(&stream, rank as f32)?;
    comm.all_reduce(InPlace(&mut from_left), ReduceOp::Max, &stream)?;
    assert_eq!(from_left.to_vec(&stream)?[LEN - 1], (size - 1) as f32);

    drop((sums, from_left));
    assert!(ctx.close()?.is_empty());
    comm.close()?;
    Ok(())
}

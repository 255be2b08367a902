//! Memory that all devices see and that grows where it stands: a device writes, another one reads, and a communicator reduces.
//!
//! `cargo run --example mapped_memory`, on GPUs that can reach each other; anywhere with `--features emulator`.

use gpucomm::cuda::vmm::{Access, AddressRange, MemoryProperties, PhysicalMemory};
use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Result, Stream};

fn main() -> Result<()> {
    let devices = Device::all()?;
    let home = devices[0];
    let step = MemoryProperties::new(home).granularity()?.recommended;

    // Addresses for 64 steps, memory for the first of them, and every device may use it.
    let everybody: Vec<_> = devices.iter().map(|device| Access::read_write(*device)).collect();
    let range = AddressRange::reserve(64 * step)?;
    let mut shared: DeviceBuffer<u32> = range.map(PhysicalMemory::new(home, step)?, &everybody)?.into_buffer();
    println!("{} elements at {:p}, room for {}", shared.len(), shared.as_raw(), shared.capacity());

    // Each device writes its part: one after the other, as if there were one stream.
    let streams: Vec<_> = devices.iter().map(|device| Stream::new(*device)).collect::<Result<_>>()?;
    for (rank, stream) in streams.iter().enumerate() {
        shared.slice_mut(rank..rank + 1).fill(stream, rank as u32 + 1)?;
    }
    println!("written by {} devices: {:?}", devices.len(), shared.slice(..devices.len()).to_vec(&streams[0])?);

    // More of it, at the same address.
    let (begin, before) = (shared.as_raw(), shared.len());
    shared.grow(PhysicalMemory::new(home, step)?)?;
    println!("{before} elements became {}, at {begin:p} as before", shared.len());
    assert_eq!(shared.as_raw(), begin);

    // Operations take it as they take any buffer.
    let sums = Clique::init_all(&devices)?.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let memory = PhysicalMemory::new(comm.device(), step)?;
        let mut mine: DeviceBuffer<u32> = memory.map(&[Access::read_write(comm.device())])?.into_buffer();
        mine.fill(&stream, comm.rank() as u32 + 1)?;
        comm.all_reduce(InPlace(&mut mine), ReduceOp::Sum, &stream)?;
        Ok(mine.slice(..1).to_vec(&stream)?[0])
    })?;
    println!("sums: {sums:?}");
    assert!(sums.iter().all(|sum| *sum == (1..=devices.len() as u32).sum::<u32>()));
    Ok(())
}

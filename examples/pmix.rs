//! Ranks that a launcher with PMIx has started: PMIx says who they are and tells them where rank 0 is; NCCL moves the data.
//!
//! `srun --mpi=pmix -n 4 target/debug/examples/pmix`, after `cargo build --example pmix --features pmix`; also under Open MPI's `mpirun`.
//! Without a GPU, `--features pmix,emulator`.

use std::error::Error;

use gpucomm::exchange::PmixPlace;
use gpucomm::nccl::InitOptions;
use gpucomm::{Communicator, Device, DeviceBuffer, InPlace, ReduceOp, Stream};

fn main() -> Result<(), Box<dyn Error>> {
    let place = PmixPlace::new()?;
    println!(
        "rank {} of {}, number {} of {} on its node",
        place.rank(),
        place.size(),
        place.local_rank(),
        place.local_size()
    );
    // Each rank of a node takes a GPU of its own.
    let device = Device::new(place.local_rank())?;
    let exchange = place.join()?;
    let (rank, size) = (exchange.rank() as u64, exchange.size() as u64);

    // SAFETY: all ranks run this program, so they issue the same operations in the same order, with the same counts and
    // types.
    let comm = unsafe { Communicator::init_rank_over(device, &exchange, &InitOptions::default()) }?;
    let stream = Stream::new(device)?;
    let mut sum = DeviceBuffer::from_slice(&stream, &[rank; 1000])?;
    comm.all_reduce(InPlace(&mut sum), ReduceOp::Sum, &stream)?;
    let right = sum.to_vec(&stream)? == [size * (size - 1) / 2; 1000];

    let vote = exchange.vote(if right { Ok(()) } else { Err(format!("rank {rank} has another sum")) })?;
    comm.close()?;
    if !vote.unanimous() {
        return Err(format!("{vote}").into());
    }
    if rank == 0 {
        println!("{size} ranks of PMIx have the same sum");
    }
    Ok(())
}

//! Ranks that `mpirun` has started: MPI says who they are and tells them where rank 0 is; NCCL moves the data.
//!
//! `mpirun -n 4 target/debug/examples/mpi`, after `cargo build --example mpi --features mpi`; without a GPU, `--features mpi,emulator`.

use std::error::Error;

use gpucomm::exchange::MpiPlace;
use gpucomm::{Communicator, Device, DeviceBuffer, InPlace, ReduceOp, Stream, UniqueId};
use mpi::traits::{Communicator as _, CommunicatorCollectives as _};

fn main() -> Result<(), Box<dyn Error>> {
    let universe = mpi::initialize().ok_or("MPI was initialized before")?;
    let world = universe.world();
    let place = MpiPlace::new(&world)?;
    // Each rank of a host takes a GPU of its own.
    let device = Device::new(place.local_rank())?;
    let exchange = place.join()?;
    let (rank, size) = (exchange.rank(), exchange.size());
    assert_eq!((rank.try_into(), size.try_into()), (Ok(world.rank()), Ok(world.size())));

    let id = UniqueId::shared(&exchange)?;
    // SAFETY: all ranks run this program, so they issue the same operations in the same order, with the same counts and
    // types.
    let comm = unsafe { Communicator::init_rank(device, size, &id, rank) }?;
    let stream = Stream::new(device)?;

    let values: Vec<u64> = (0..1000).map(|at| at * 31 + world.rank().unsigned_abs() as u64).collect();
    let mut sum = DeviceBuffer::from_slice(&stream, &values)?;
    comm.all_reduce(InPlace(&mut sum), ReduceOp::Sum, &stream)?;
    let sum = sum.to_vec(&stream)?;

    // What MPI makes of the same values is what NCCL should have made of them.
    let mut expected = vec![0; values.len()];
    world.all_reduce_into(&values[..], &mut expected[..], mpi::collective::SystemOperation::sum());
    let right = sum == expected;
    let vote = exchange.vote(if right { Ok(()) } else { Err(format!("rank {rank} has another sum than MPI")) })?;
    comm.close()?;
    if !vote.unanimous() {
        return Err(format!("{vote}").into());
    }
    if rank == 0 {
        println!("{size} ranks of MPI agree with it");
    }
    Ok(())
}

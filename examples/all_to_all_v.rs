//! Everybody sends everybody something, and to each a different amount: the pattern behind a mixture of experts, or a
//! sort over several GPUs.
//!
//! Rank r sends r + p + 1 elements to rank p. A `Layout` says how many elements belong to each rank; without offsets,
//! the parts follow one another.
//!
//! Without a GPU: `cargo run --example all_to_all_v --features emulator`.

use gpucomm::nccl::Layout;
use gpucomm::{Clique, Device, DeviceBuffer, Result, Stream};

/// Elements that `from` sends to `to`.
fn amount(from: usize, to: usize) -> usize {
    from + to + 1
}

/// What `from` sends to `to`: a number that tells both, again and again.
fn part(from: usize, to: usize) -> impl Iterator<Item = u32> {
    std::iter::repeat_n((from * 100 + to) as u32, amount(from, to))
}

fn main() -> Result<()> {
    let mut devices = Device::all()?;
    devices.truncate(4);
    let clique = Clique::init_all(&devices)?;

    let received = clique.spmd(|comm| {
        let (rank, size) = (comm.rank(), comm.size());
        let stream = Stream::new(comm.device())?;
        let send_counts: Vec<usize> = (0..size).map(|peer| amount(rank, peer)).collect();
        let recv_counts: Vec<usize> = (0..size).map(|peer| amount(peer, rank)).collect();
        let outgoing: Vec<u32> = (0..size).flat_map(|peer| part(rank, peer)).collect();

        let send = DeviceBuffer::from_slice(&stream, &outgoing)?;
        let mut recv = DeviceBuffer::<u32>::zeroed(&stream, recv_counts.iter().sum())?;
        comm.all_to_all_v((&send, &mut recv), Layout::packed(&send_counts), Layout::packed(&recv_counts), &stream)?;
        recv.to_vec(&stream)
    })?;

    for (rank, values) in received.iter().enumerate() {
        let expected: Vec<u32> = (0..clique.size()).flat_map(|peer| part(peer, rank)).collect();
        assert_eq!(values, &expected, "rank {rank}");
    }
    println!("{} ranks exchanged parts of different lengths", clique.size());
    Ok(())
}

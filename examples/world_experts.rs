//! A mixture of experts through a world: each rank has an expert, and tokens of all ranks go to the expert that was chosen for them and back
//! (`all_to_all_v`).
//!
//! ```text
//! cargo run --example world_experts --features emulator
//! ```

use gpucomm::world::{Rank, World};
use gpucomm::{Device, DeviceBuffer, Result, Stream};

const TOKENS: usize = 64;

/// Which expert token `token` of a rank goes to.
fn chosen(rank: usize, token: usize, experts: usize) -> usize {
    (rank * 7 + token * token) % experts
}

fn layer(rank: &Rank) -> Result<()> {
    let (own, size) = (rank.rank(), rank.size());
    let stream = Stream::new(rank.device())?;
    // Sorted by expert; how many go to each, and how many come from each.
    let mut tokens: Vec<usize> = (0..TOKENS).collect();
    tokens.sort_by_key(|&token| chosen(own, token, size));
    let to = |from: usize, expert: usize| (0..TOKENS).filter(|&token| chosen(from, token, size) == expert).count();
    let send_counts: Vec<_> = (0..size).map(|expert| to(own, expert)).collect();
    let recv_counts: Vec<_> = (0..size).map(|from| to(from, own)).collect();
    let values: Vec<_> = tokens.iter().map(|&token| (own * TOKENS + token) as f32).collect();
    let send = DeviceBuffer::from_slice(&stream, &values)?;
    let recv = DeviceBuffer::<f32>::zeroed(&stream, recv_counts.iter().sum())?;
    let (send, mut recv) = rank.all_to_all_v((send, recv), send_counts.clone(), recv_counts.clone()).wait()?;
    // What this expert does: here, on the host.
    let done: Vec<_> = recv.to_vec(&stream)?.into_iter().map(|value| value * 2.0 + own as f32).collect();
    recv.copy_from_slice(&stream, &done)?;
    // And back, into the buffer that the tokens came from.
    let (_, back) = rank.all_to_all_v((recv, send), recv_counts, send_counts).wait()?;
    for (value, &token) in back.to_vec(&stream)?.into_iter().zip(&tokens) {
        assert_eq!(value, (own * TOKENS + token) as f32 * 2.0 + chosen(own, token, size) as f32);
    }
    Ok(())
}

fn main() -> Result<()> {
    let world = World::new(&Device::all()?)?;
    let ranks = world.ranks();
    std::thread::scope(|scope| {
        let all: Vec<_> = ranks.iter().map(|rank| scope.spawn(move || layer(rank))).collect();
        all.into_iter().try_for_each(|rank| rank.join().expect("no panic"))
    })?;
    println!("{} tokens of each of {} ranks went to their experts and back", TOKENS, world.size());
    Ok(())
}

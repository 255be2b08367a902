//! A ring exchange through a world: each rank sends to the next one and receives from the one before, until all have seen what all had.
//!
//! ```text
//! cargo run --example world_ring --features emulator
//! ```

use gpucomm::world::{Rank, World, requests};
use gpucomm::{Device, DeviceBuffer, Result, Stream};

fn main() -> Result<()> {
    let world = World::new(&Device::all()?)?;
    let size = world.size();
    let fresh = |rank: &Rank, values: &[u32]| DeviceBuffer::from_slice(&Stream::new(rank.device())?, values);
    let ranks = world.ranks();
    let mut held = ranks.iter().map(|rank| fresh(rank, &[rank.rank() as u32; 4])).collect::<Result<Vec<_>>>()?;
    let mut spare = ranks.iter().map(|rank| fresh(rank, &[0; 4])).collect::<Result<Vec<_>>>()?;
    for round in 1..size {
        let answers: Vec<_> = ranks
            .iter()
            .zip(held.drain(..).zip(spare.drain(..)))
            .map(|(rank, (own, other))| {
                let (next, before) = ((rank.rank() + 1) % size, (rank.rank() + size - 1) % size);
                // One request: both go at the same time.
                rank.submit((requests::send(own, next), requests::recv(other, before)))
            })
            .collect();
        for answer in answers {
            let (sent, received) = answer.wait()?;
            held.push(received);
            spare.push(sent);
        }
        for (rank, x) in held.iter().enumerate() {
            assert_eq!(x.to_vec(&Stream::new(x.device())?)?, [((rank + size - round) % size) as u32; 4]);
        }
    }
    println!("{size} ranks have seen what all had");
    Ok(())
}

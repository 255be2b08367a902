//! Room for one request is for one.
use gpucomm::Result;
use gpucomm::world::{Barrier, Rank};

async fn twice(rank: &Rank) -> Result<()> {
    let permit = rank.room().await?;
    let _ = permit.submit(Barrier);
    let _ = permit.submit(Barrier);
    Ok(())
}

fn main() {}

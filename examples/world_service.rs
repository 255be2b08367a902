//! A service on tokio: tasks hand work to the ranks of a world, and await what comes of it. By itself
//! it has a rank on each device; under a launcher each process has one rank.
//!
//! ```text
//! cargo run --example world_service --features emulator
//! gpucomm run -n 4 -- target/debug/examples/world_service
//! ```

use gpucomm::world::{Lane, World, WorldOptions};
use gpucomm::{Device, DeviceBuffer, InPlace, Launch, ReduceOp, Result, Stream};

/// Each task has requests for all ranks, in a lane of its own: all ranks take the lanes in one order.
async fn task(world: &World, number: u32) -> Result<()> {
    let lane = Lane::new(format!("task {number}"));
    for round in 0..10 {
        let mut answers = Vec::new();
        for rank in world.ranks() {
            let x = DeviceBuffer::from_slice(&Stream::new(rank.device())?, &[number + round; 100])?;
            let rank = rank.with_lane(&lane);
            // Where the queue is full this task waits, and no thread.
            let room = rank.room().await?;
            answers.push(room.submit(gpucomm::world::requests::all_reduce(InPlace(x), ReduceOp::Sum)));
        }
        for answer in answers {
            let x = answer.await?;
            let stream = Stream::new(x.device())?;
            stream.done().await?;
            assert_eq!(x.to_vec(&stream)?, [world.size() as u32 * (number + round); 100]);
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = WorldOptions::new().with_sequenced(true);
    let launch = Launch::from_env()?;
    let world = if launch.size() > 1 {
        // SAFETY: all ranks run this program.
        unsafe { World::from_launch(&launch, &options)? }
    } else {
        World::new_with(&Device::all()?, &options)?
    };
    let world = std::sync::Arc::new(world);
    let tasks: Vec<_> = (0..16)
        .map(|number| {
            let world = std::sync::Arc::clone(&world);
            tokio::spawn(async move { task(&world, number).await })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic")?;
    }
    println!("{:?}", world.metrics());
    Ok(())
}

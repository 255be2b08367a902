//! A pipeline through a world: each rank is a stage, which takes what the stage before has sent, and sends it on; several batches are on their
//! way at the same time.
//!
//! ```text
//! cargo run --example world_pipeline --features emulator
//! ```

use gpucomm::world::{Rank, World};
use gpucomm::{Device, DeviceBuffer, Result, Stream};

const BATCHES: u32 = 8;

/// What a stage does with a batch: here, on the host.
fn compute(x: &mut DeviceBuffer<u32>, stream: &Stream) -> Result<()> {
    let values: Vec<_> = x.to_vec(stream)?.into_iter().map(|value| value + 1).collect();
    x.copy_from_slice(stream, &values)
}

/// A thread of the program for each stage; the ranks have threads of their own.
fn stage(rank: &Rank) -> Result<Vec<u32>> {
    let (own, last) = (rank.rank(), rank.size() - 1);
    let stream = Stream::new(rank.device())?;
    let (mut sent, mut results) = (Vec::new(), Vec::new());
    for batch in 0..BATCHES {
        let mut x = match own {
            0 => DeviceBuffer::from_slice(&stream, &[100 * batch; 16])?,
            _ => rank.recv(DeviceBuffer::zeroed(&stream, 16)?, own - 1).wait()?,
        };
        compute(&mut x, &stream)?;
        if own < last {
            // The next batch does not wait for this one to arrive.
            sent.push(rank.send(x, own + 1));
        } else {
            results.push(x.to_vec(&stream)?[0]);
        }
    }
    sent.into_iter().try_for_each(|answer| answer.wait().map(drop))?;
    Ok(results)
}

fn main() -> Result<()> {
    let world = World::new(&Device::all()?)?;
    let ranks = world.ranks();
    let results = std::thread::scope(|scope| {
        let stages: Vec<_> = ranks.iter().map(|rank| scope.spawn(move || stage(rank))).collect();
        stages.into_iter().map(|stage| stage.join().expect("no panic")).collect::<Result<Vec<_>>>()
    })?;
    let stages = world.size() as u32;
    assert_eq!(results[world.size() - 1], (0..BATCHES).map(|batch| 100 * batch + stages).collect::<Vec<_>>());
    println!("{BATCHES} batches went through {stages} stages");
    Ok(())
}

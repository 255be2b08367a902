//! Answers under executors that others wrote.

use gpucomm::world::{Lane, World, WorldOptions};
use gpucomm::{InPlace, ReduceOp};

use super::block_on::block_on;
use super::support::{on, values, world};

/// A task: requests for all ranks in a lane of its own.
async fn task(world: &World, number: u32) {
    let lane = Lane::new(format!("{number}"));
    let size = u32::try_from(world.size()).unwrap();
    for round in 0..10 {
        let mut answers = Vec::new();
        for rank in world.ranks() {
            let x = InPlace(on(rank.device(), &[number * round; 9]));
            let rank = rank.with_lane(&lane);
            let room = rank.room().await.unwrap();
            answers.push(room.submit(gpucomm::world::requests::all_reduce(x, ReduceOp::Sum)));
        }
        for answer in answers {
            assert_eq!(values(&answer.await.unwrap()), [size * number * round; 9]);
        }
    }
}

fn sequenced() -> World {
    world(3, WorldOptions::new().with_sequenced(true).with_queue(8))
}

#[test]
fn tokio() {
    let world = std::sync::Arc::new(sequenced());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let tasks: Vec<_> = (0..16)
        .map(|number| {
            let world = world.clone();
            runtime.spawn(async move { task(&world, number).await })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(world.metrics().failed, 0);
}

/// That of smol.
#[test]
fn smol() {
    let world = std::sync::Arc::new(sequenced());
    let executor = async_executor::Executor::new();
    let tasks: Vec<_> = (0..16)
        .map(|number| {
            let world = world.clone();
            executor.spawn(async move { task(&world, number).await })
        })
        .collect();
    block_on(executor.run(async {
        for task in tasks {
            task.await;
        }
    }));
    assert_eq!(world.metrics().failed, 0);
}

#[test]
fn none() {
    let world = sequenced();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let world = &world;
            scope.spawn(move || block_on(task(world, number)));
        }
    });
}

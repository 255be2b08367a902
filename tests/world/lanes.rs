//! Lanes, and the order that all ranks follow.

use gpucomm::InPlace;
use gpucomm::world::{Lane, Op, Recv, Send, WorldOptions};

use super::support::{on, values, world, zeroed};

/// Each task comes to the ranks in an order of its own.
#[test]
fn sixteen_tasks() {
    let world = world(3, WorldOptions { sequenced: true, queue: 64, ..WorldOptions::default() });
    let size = u32::try_from(world.size()).unwrap();
    std::thread::scope(|scope| {
        for task in 0..16u32 {
            let world = &world;
            scope.spawn(move || {
                let lane = Lane::new(format!("task {task}"));
                for round in 0..20 {
                    let mut ranks = world.ranks();
                    fastrand::shuffle(&mut ranks);
                    let ask = |rank: gpucomm::world::Rank| {
                        let len = usize::try_from(task + 1).unwrap();
                        let x = InPlace(on(rank.device(), &vec![round + task; len]));
                        rank.lane(&lane).all_reduce(x, Op::Sum)
                    };
                    let answers: Vec<_> = ranks.into_iter().map(ask).collect();
                    for answer in answers {
                        let x = answer.wait().unwrap();
                        assert!(values(&x).iter().all(|value| *value == size * (round + task)));
                    }
                }
            });
        }
    });
    assert_eq!(world.metrics().done, 16 * 20 * u64::from(size));
}

/// A lane of two ranks beside those of all.
#[test]
fn a_lane_of_some() {
    let world = world(3, WorldOptions { sequenced: true, ..WorldOptions::default() });
    let size = world.size();
    if size < 2 {
        return;
    }
    let lane = Lane::of("from the first to the last", [0, size - 1]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..50).for_each(|_| drop(world.barrier().wait().unwrap())));
        scope.spawn(|| {
            for round in 0..50u32 {
                let (first, last) = (world.rank(0).unwrap().lane(&lane), world.rank(size - 1).unwrap().lane(&lane));
                let received = last.submit(Recv::new(zeroed::<u32>(last.device(), 1), 0));
                let sent = first.submit(Send::new(on(first.device(), &[round]), size - 1));
                assert_eq!(values(&received.wait().unwrap()), [round]);
                sent.wait().unwrap();
            }
        });
    });
}

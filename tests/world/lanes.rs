//! Lanes, and the order that all ranks follow.

use gpucomm::world::{Lane, WorldOptions, requests};
use gpucomm::{InPlace, ReduceOp};

use super::support::{on, values, world, zeroed};

/// Each task comes to the ranks in an order of its own.
#[test]
fn sixteen_tasks() {
    let world = world(3, WorldOptions::new().with_sequenced(true).with_queue(64));
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
                        rank.with_lane(&lane).all_reduce(x, ReduceOp::Sum)
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

/// Names that were taken for each other: of requests that meet in one lane, ranks would sum up different ones.
#[test]
fn names_that_are_nearly_the_same() {
    let world = world(3, WorldOptions::new().with_sequenced(true).with_queue(64));
    let size = u32::try_from(world.size()).unwrap();
    let long = "x".repeat(250);
    let names = ["", "a\tb", "a\nb", "a b", &format!("{long}1"), &format!("{long}2")];
    let lanes: Vec<_> = names.into_iter().map(|name| Some(Lane::new(name))).chain([None]).collect();
    let mut answers = Vec::new();
    for round in 0..10u32 {
        for rank in world.ranks() {
            // Each rank in an order of its own.
            let mut order: Vec<_> = (0..lanes.len()).collect();
            fastrand::shuffle(&mut order);
            for at in order {
                let value = 100 * round + u32::try_from(at).unwrap();
                let x = InPlace(on(rank.device(), &[value]));
                let rank = lanes[at].as_ref().map_or_else(|| rank.clone(), |lane| rank.clone().with_lane(lane));
                answers.push((size * value, rank.all_reduce(x, ReduceOp::Sum)));
            }
        }
    }
    for (want, answer) in answers {
        assert_eq!(values(&answer.wait().unwrap()), [want]);
    }
}

/// A lane of two ranks beside those of all.
#[test]
fn a_lane_of_some() {
    let world = world(3, WorldOptions::new().with_sequenced(true));
    let size = world.size();
    if size < 2 {
        return;
    }
    let lane = Lane::of("from the first to the last", [0, size - 1]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..50).for_each(|_| drop(world.barrier().wait().unwrap())));
        scope.spawn(|| {
            for round in 0..50u32 {
                let (first, last) =
                    (world.rank(0).unwrap().with_lane(&lane), world.rank(size - 1).unwrap().with_lane(&lane));
                let received = last.submit(requests::recv(zeroed::<u32>(last.device(), 1), 0));
                let sent = first.submit(requests::send(on(first.device(), &[round]), size - 1));
                assert_eq!(values(&received.wait().unwrap()), [round]);
                sent.wait().unwrap();
            }
        });
    });
}

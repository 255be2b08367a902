//! What one rank leaves out is not made up for by what comes next.

use std::sync::{Arc, Barrier as Meet};
use std::time::Duration;

use gpucomm::world::{
    Lane, Members, Rank, Reason, WhileDown, WorldOptions,
    completion::{Blocking, Completion, HostCallback, Polling},
    health::Phase,
    requests,
};
use gpucomm::{InPlace, ReduceOp, Stream};

use super::support::{eventually, hold, on, slower, values, world};

/// A request that is too late on one rank alone is not paired with the next one of that rank.
#[test]
fn late_on_one_rank() {
    let world = world(2, WorldOptions::default());
    if world.size() < 2 {
        return;
    }
    world.barrier().wait().unwrap();
    let (first, other) = (world.rank(0).unwrap(), world.rank(1).unwrap());
    let (let_go, _held) = hold(&first);
    let late = first
        .clone()
        .with_timeout(Duration::from_millis(30))
        .all_reduce(InPlace(on(first.device(), &[1u8])), ReduceOp::Sum);
    let next = first.all_reduce(InPlace(on(first.device(), &[2u8])), ReduceOp::Sum);
    // What belongs to the one that is late.
    let begun = other.all_reduce(InPlace(on(other.device(), &[4u8])), ReduceOp::Sum);
    let failed = late.wait().unwrap_err();
    assert_eq!((failed.reason, values(&failed.buffers.unwrap())), (Reason::Late, vec![1]));
    drop(let_go);
    assert_eq!(next.wait().unwrap_err().reason, Reason::Down);
    // Without a sum of what does not belong together.
    assert!(begun.wait().is_err());
    eventually("it is down", || world.health().phase == Phase::Down);
}

/// What was cancelled is not late, and brings nothing down.
#[test]
fn cancelled_and_late() {
    let world = world(2, WorldOptions::default());
    let held: Vec<_> = world.ranks().iter().map(hold).collect();
    let ranks: Vec<_> = world.ranks().into_iter().map(|rank| rank.with_timeout(Duration::from_millis(300))).collect();
    assert!(world.submit_through(&ranks, ranks.iter().map(|_| requests::barrier())).cancel());
    std::thread::sleep(Duration::from_millis(400));
    for (let_go, answer) in held {
        drop(let_go);
        answer.wait().unwrap();
    }
    world.barrier().wait().unwrap();
    assert_eq!(world.health().phase, Phase::Up);
}

/// Two tasks fill the queue of a rank each, which waits for the other one.
#[test]
fn a_full_queue_lets_in_whose_turn_it_is() {
    let world = world(2, WorldOptions::new().with_sequenced(true).with_queue(2).with_timeout(slower(20.0)));
    let (a, b) = (Lane::new("a"), Lane::new("b"));
    let size = world.size();
    let meet = Meet::new(2);
    let task = |lane: &Lane, mine: usize, theirs: usize| {
        let ask = |rank: usize| {
            let rank = world.rank(rank).unwrap().with_lane(lane);
            rank.all_reduce(InPlace(on(rank.device(), &[1u8])), ReduceOp::Sum)
        };
        // Two fill the queue of this rank; the other ones do the same elsewhere.
        let mut answers = vec![ask(mine), ask(mine)];
        meet.wait();
        if size > 1 {
            answers.extend([ask(theirs), ask(theirs)]);
        }
        answers.into_iter().for_each(|answer| assert_eq!(usize::from(values(&answer.wait().unwrap())[0]), size));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| task(&a, 0, size - 1));
        scope.spawn(|| task(&b, size - 1, 0));
    });
}

/// All ranks take what is submitted to all of them in one order, while the world is down too.
#[test]
fn all_at_once_while_down() {
    let world = world(2, WorldOptions::new().with_while_down(WhileDown::Queue));
    let size = u32::try_from(world.size()).unwrap();
    for round in 0..20 {
        world.fail("a test");
        let answers: Vec<_> = std::thread::scope(|scope| {
            let ask = |task: u32| {
                let x = |device| InPlace(on(device, &[task * 1000 + round]));
                world.all_reduce(world.devices().into_iter().map(x), ReduceOp::Sum)
            };
            let tasks: Vec<_> = (0..4).map(|task| scope.spawn(move || (task, ask(task)))).collect();
            tasks.into_iter().map(|task| task.join().unwrap()).collect()
        });
        world.rebuild(Members::Same).unwrap();
        for (task, answer) in answers {
            for x in answer.wait().unwrap() {
                assert_eq!(values(&x), [size * (task * 1000 + round)]);
            }
        }
    }
}

/// Requests come while the world comes up: their turns are not lost.
#[test]
fn submitted_as_it_begins() {
    let options = WorldOptions::new().with_while_down(WhileDown::Queue).with_sequenced(true);
    let world = world(2, options.with_timeout(slower(20.0)));
    for _ in 0..10 {
        world.fail("a test");
        std::thread::scope(|scope| {
            for rank in world.ranks() {
                let lane = Lane::new("one");
                scope.spawn(move || {
                    let rank = rank.with_lane(&lane);
                    let answers: Vec<_> = (0..50).map(|_| rank.submit(requests::barrier())).collect();
                    answers.into_iter().for_each(|answer| answer.wait().unwrap());
                });
            }
            world.rebuild(Members::Same).unwrap();
        });
    }
}

/// Who uses what a rank has given back does not wait for what it was given since, on which perhaps others wait for him.
#[test]
fn what_was_given_back_is_done_with() {
    let completions: [Arc<dyn Completion>; 3] =
        [Arc::new(Polling::default()), Arc::new(HostCallback), Arc::new(Blocking)];
    for completion in completions {
        let world = world(2, WorldOptions::new().with_completion(completion));
        let ranks = world.ranks();
        let (size, device) = (u32::try_from(world.size()).unwrap(), ranks[0].device());
        let make = |rank: &Rank| InPlace(on(rank.device(), &[1u32; 7]));
        let x =
            world.all_reduce(ranks.iter().map(make).collect::<Vec<_>>(), ReduceOp::Sum).wait().unwrap().swap_remove(0);
        let (before, limit) = (world.metrics().enqueued, slower(20.0));
        let waits = ranks[0].clone().with_timeout(limit).all_reduce(make(&ranks[0]), ReduceOp::Sum);
        while world.metrics().enqueued == before {
            std::thread::yield_now();
        }
        // Read, written and read again, elsewhere.
        let other = Stream::new(device).unwrap();
        assert_eq!(values(&x), [size; 7]);
        let mut x = x;
        x.fill(&other, 3).unwrap();
        assert_eq!(x.to_vec(&other).unwrap(), [3; 7]);
        other.synchronize().unwrap();
        drop(x);
        for rank in &ranks[1..] {
            let _ = rank.all_reduce(make(rank), ReduceOp::Sum).wait().unwrap();
        }
        assert_eq!(values(&waits.wait().unwrap()), [size; 7]);
    }
}

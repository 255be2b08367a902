//! Back-pressure, deadlines of what waits, and the end.

use std::time::{Duration, Instant};

use gpucomm::world::{Overflow, Reason, WorldOptions, requests};
use gpucomm::{Error, InPlace, ReduceOp};

use super::block_on::block_on;
use super::support::{hold, on, slower, values, world};

#[test]
fn a_queue_that_is_full() {
    let world = world(1, WorldOptions::new().with_queue(2));
    let rank = world.rank(0).unwrap();
    let (let_go, held) = hold(&rank);
    let waiting = [rank.submit(requests::barrier()), rank.submit(requests::barrier())];
    let refuses = rank.clone().with_overflow(Overflow::Refuse);
    let failed = refuses.all_reduce(InPlace(on(rank.device(), &[1u8])), ReduceOp::Sum).wait().unwrap_err();
    assert_eq!((failed.reason, values(&failed.buffers.unwrap())), (Reason::Full, vec![1]));
    let start = Instant::now();
    let failed = rank.clone().with_timeout(Duration::from_millis(50)).submit(requests::barrier()).wait().unwrap_err();
    assert!(failed.reason == Reason::Full && start.elapsed() >= Duration::from_millis(50), "{failed}");
    // A future waits for room, and holds up nobody.
    std::thread::scope(|scope| {
        let task =
            scope.spawn(|| block_on(async { Ok::<_, Error>(rank.room().await?.submit(requests::barrier()).await?) }));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!task.is_finished());
        drop(let_go);
        task.join().unwrap().unwrap();
    });
    held.wait().unwrap();
    waiting.into_iter().for_each(|answer| answer.wait().unwrap());
    let room = block_on(rank.room()).unwrap();
    assert_eq!(rank.queued(), 1);
    drop(room);
    assert_eq!(rank.queued(), 0);
}

#[test]
fn what_waits_too_long() {
    let world = world(1, WorldOptions::default());
    let rank = world.rank(0).unwrap();
    let (let_go, held) = hold(&rank);
    let failed = rank.clone().with_timeout(Duration::from_millis(50)).submit(requests::barrier()).wait().unwrap_err();
    assert_eq!(failed.reason, Reason::Late);
    assert!(matches!(failed.error, Error::Timeout { operation: "barrier", .. }), "{failed}");
    drop(let_go);
    held.wait().unwrap();
    rank.submit(requests::barrier()).wait().unwrap();
}

#[test]
fn a_slow_rank_holds_up_no_other() {
    let world = world(2, WorldOptions::default());
    if world.size() < 2 {
        return;
    }
    let (let_go, held) = hold(&world.rank(0).unwrap());
    let other = world.rank(1).unwrap();
    for _ in 0..100 {
        other.submit(std::iter::repeat_with(requests::barrier).take(0).collect::<Vec<_>>()).wait().unwrap();
    }
    drop(let_go);
    held.wait().unwrap();
}

#[test]
fn drained() {
    let world = world(2, WorldOptions::default());
    let (rank, barriers) = (world.rank(0).unwrap(), (0..50).map(|_| world.barrier()).collect::<Vec<_>>());
    world.close_timeout(slower(30.0)).unwrap();
    barriers.into_iter().for_each(|barrier| drop(barrier.wait().unwrap()));
    let failed = rank.submit(requests::barrier()).wait().unwrap_err();
    assert_eq!(failed.reason, Reason::Closed);
}

#[test]
fn aborted() {
    let world = world(2, WorldOptions::default());
    if world.size() < 2 {
        return;
    }
    // Nobody else comes.
    let rank = world.rank(0).unwrap();
    let waits = rank.all_reduce(InPlace(on(rank.device(), &[3u8])), ReduceOp::Sum);
    let queued = rank.submit(requests::barrier());
    world.abort("a test").unwrap();
    let failed = waits.wait().unwrap_err();
    assert!(failed.buffers.is_some());
    assert!(matches!(&failed.error, Error::Aborted { reason, .. } if reason.contains("a test")), "{failed}");
    assert!(queued.wait().is_err());
}

#[test]
fn what_cannot_be_drained() {
    let world = world(2, WorldOptions::default());
    if world.size() < 2 {
        return;
    }
    let rank = world.rank(0).unwrap();
    let waits = rank.all_reduce(InPlace(on(rank.device(), &[3u8])), ReduceOp::Sum);
    let error = world.close_timeout(Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(waits.wait().unwrap_err().buffers.is_some());
}

#[test]
fn dropped() {
    let world = world(2, WorldOptions::default());
    let barrier = world.barrier();
    drop(world);
    barrier.wait().unwrap();
}

//! Worlds that fail, and go on.

use std::time::Duration;

use gpucomm::world::{Members, Reason, Rebuild, WhileDown, WorldOptions, health::Phase, requests};
use gpucomm::{Error, ErrorKind, InPlace, ReduceOp};

use super::block_on::block_on;
use super::support::{eventually, on, slower, values, world};

#[test]
fn by_hand() {
    let world = world(3, WorldOptions::default());
    let size = u64::try_from(world.size()).unwrap();
    let before = world.rank(0).unwrap();
    let mut watch = world.watch();
    // Rank 0 waits for the others, which never come.
    let waits = before.all_reduce(InPlace(on(before.device(), &[1u64; 9])), ReduceOp::Sum);
    let queued = before.all_reduce(InPlace(on(before.device(), &[2u64; 9])), ReduceOp::Sum);
    if size > 1 {
        world.fail("a test");
        let failed = waits.wait().unwrap_err();
        assert!(failed.error.to_string().contains("a test"), "{failed}");
        assert_eq!(failed.buffers.unwrap().len(), 9);
        let failed = queued.wait().unwrap_err();
        assert_eq!((failed.reason, values(&failed.buffers.unwrap())), (Reason::Down, vec![2; 9]));
    } else {
        waits.wait().unwrap();
        queued.wait().unwrap();
        world.fail("a test");
    }
    let health = watch.wait_timeout(slower(10.0)).unwrap();
    assert_eq!((health.generation, health.phase), (1, Phase::Down));
    assert!(health.cause.unwrap().to_string().contains("a test"));
    // New ones are refused.
    let failed = world.rank(0).unwrap().submit(requests::barrier()).wait().unwrap_err();
    assert_eq!(failed.reason, Reason::Down);
    assert_eq!(before.submit(requests::barrier()).wait().unwrap_err().reason, Reason::Down);
    let mut watch = world.watch();
    world.rebuild(Members::Same).unwrap();
    eventually("it is up", || block_on(watch.changed()).phase == Phase::Up);
    let after = world.ranks();
    let ask = |rank: &gpucomm::world::Rank| rank.all_reduce(InPlace(on(rank.device(), &[1u64; 9])), ReduceOp::Sum);
    let answers: Vec<_> = after.iter().map(ask).collect();
    answers.into_iter().for_each(|answer| assert_eq!(values(&answer.wait().unwrap()), [size; 9]));
    let failed = before.submit(requests::barrier()).wait().unwrap_err();
    assert_eq!(failed.reason, Reason::Stale);
    assert!(failed.error.to_string().contains("rank 0 of generation 1: the world is in generation 2"), "{failed}");
    assert_eq!((world.metrics().lost, world.metrics().rebuilt), (1, 1));
    // One that is up is left as it is.
    world.rebuild(Members::Survivors).unwrap();
    assert_eq!(world.health().generation, 2);
}

#[test]
fn requests_wait_for_the_next_generation() {
    let options = WorldOptions::new().with_while_down(WhileDown::Queue);
    for sequenced in [false, true] {
        let world = world(2, options.clone().with_sequenced(sequenced));
        world.fail("a test");
        let ask = |rank: gpucomm::world::Rank| rank.all_reduce(InPlace(on(rank.device(), &[1u8; 4])), ReduceOp::Sum);
        let answers: Vec<_> = world.ranks().into_iter().map(ask).collect();
        let late = world
            .rank(0)
            .unwrap()
            .with_timeout(Duration::from_millis(30))
            .submit(requests::barrier())
            .wait()
            .unwrap_err();
        assert_eq!(late.reason, Reason::Late);
        assert!(answers.iter().all(|answer| !answer.is_ready()));
        world.rebuild(Members::Same).unwrap();
        let size = u8::try_from(world.size()).unwrap();
        answers.into_iter().for_each(|answer| assert_eq!(values(&answer.wait().unwrap()), [size; 4]));
        // Nobody comes to the other ranks with what was late; it keeps its turn, and does nothing.
        world.barrier().wait().unwrap();
    }
}

#[test]
fn by_itself() {
    let rebuild = Rebuild::Automatic {
        members: Members::Same,
        first: Duration::from_millis(10),
        longest: Duration::from_secs(1),
        attempts: 5,
    };
    let world = world(3, WorldOptions::new().with_rebuild(rebuild).with_while_down(WhileDown::Queue));
    for round in 1..4 {
        world.fail("a test");
        eventually("it is up", || world.health().generation == round + 1);
        world.barrier().wait().unwrap();
    }
    assert_eq!(world.metrics().rebuilt, 3);
}

/// What a request is refused with leads to what has ended the generation.
#[test]
fn refusals_lead_to_the_cause() {
    let world = world(2, WorldOptions::default());
    world.fail("a test");
    let failed = world.rank(0).unwrap().submit(requests::barrier()).wait().unwrap_err();
    let error = std::error::Error::source(&failed).and_then(|error| error.downcast_ref()).expect("its error");
    assert_eq!(&failed.error, error);
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Aborted, "barrier"), "{error:?}");
    let first =
        std::error::Error::source(error).and_then(|cause| cause.source()?.downcast_ref::<Error>()).expect("a cause");
    assert_eq!((first.kind(), first.operation()), (ErrorKind::Aborted, "World::fail"), "{first:?}");
    assert_eq!(Some(first), world.health().cause.as_ref());
    assert!(std::error::Error::source(first).is_none_or(|cause| cause.source().is_none()), "{first:?}");
}

/// Work that is late ends the generation, and everybody is told.
#[test]
fn late() {
    let world = world(2, WorldOptions::default());
    if world.size() < 2 {
        return;
    }
    world.barrier().wait().unwrap();
    let rank = world.rank(0).unwrap().with_timeout(Duration::from_millis(200));
    let failed = rank.submit(requests::barrier()).wait().unwrap_err();
    assert!(matches!(failed.error, Error::Timeout { .. } | Error::Aborted { .. }), "{failed}");
    eventually("it is down", || world.health().phase == Phase::Down);
    world.rebuild(Members::Survivors).unwrap();
    world.barrier().wait().unwrap();
}

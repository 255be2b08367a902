//! What errors say of requests, and when.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpucomm::world::{
    Lane, Members, Overflow, Rank, Reason, WorldOptions,
    completion::{Completion, InFlight},
    health::Phase,
    requests::{self, At, Request},
};
use gpucomm::{Error, InPlace, ReduceOp, Result};

use super::support::{eventually, hold, on, slower, world};

/// Who does not come is named, by those that wait for it.
#[test]
fn who_does_not_come_is_named() {
    for round in 0..2 {
        let world = world(3, WorldOptions::new().with_timeout(slower(1.0)).with_sequenced(round == 1));
        let size = world.size();
        if size < 2 {
            return;
        }
        let lane = Lane::new("a lane");
        let ask = |rank: &Rank| {
            let rank = if round == 1 { rank.clone().with_lane(&lane) } else { rank.clone() };
            rank.all_reduce(InPlace(on(rank.device(), &[1f32; 8])), ReduceOp::Sum)
        };
        if round == 1 {
            // They have met.
            world.barrier().wait().unwrap();
        }
        let answers: Vec<_> = world.ranks()[..size - 1].iter().map(ask).collect();
        for answer in answers {
            let failed = answer.wait().unwrap_err();
            let said = failed.error.to_string();
            assert!(said.contains(&format!("rank {} has not come", size - 1)), "{said}");
            assert_eq!(said.contains("a lane"), round == 1, "{said}");
        }
        assert_eq!(world.health().phase, Phase::Down);
    }
}

/// What goes wrong with a request as it is enqueued.
#[derive(Clone, Copy)]
enum Wrong {
    Not,
    Fails,
    Panics,
}

struct Mine<R>(R, Wrong);

impl<R: Request> Request for Mine<R> {
    type Back = ();

    fn operation(&self) -> &'static str {
        "mine"
    }

    fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
        match self.1 {
            Wrong::Not => self.0.enqueue(at),
            Wrong::Fails => Err(Error::InvalidUsage { operation: "mine", reason: "it is Tuesday".to_owned() }),
            Wrong::Panics => panic!("it is Tuesday"),
        }
    }

    fn into_back(self) {}
}

/// What one rank could not enqueue, the others do not wait for until their deadlines; and they are told why.
#[test]
fn what_is_not_enqueued() {
    for wrong in [Wrong::Fails, Wrong::Panics] {
        let world = world(3, WorldOptions::new().with_timeout(slower(60.0)));
        if world.size() < 2 {
            return;
        }
        let start = Instant::now();
        let make = |rank: &Rank| {
            let wrong = if rank.rank() == 1 { wrong } else { Wrong::Not };
            Mine(requests::all_reduce(InPlace(on(rank.device(), &[1f32; 8])), ReduceOp::Sum), wrong)
        };
        let asked = world.submit(world.ranks().iter().map(make));
        for answer in asked.into_answers().unwrap() {
            let failed = answer.wait().unwrap_err();
            // Those that had not begun are not made.
            assert!(matches!(failed.reason, Reason::Failed | Reason::Down), "{:?}", failed.reason);
            assert!(failed.error.to_string().contains("it is Tuesday"), "{failed}");
        }
        assert!(start.elapsed() < slower(20.0), "{:?}", start.elapsed());
        eventually("it is down", || world.health().phase == Phase::Down);
        assert!(world.health().cause.unwrap().to_string().contains("rank 1 has not enqueued it"));
        world.rebuild(Members::Same).unwrap();
    }
}

/// A member that records nothing, and one that is wrong.
#[test]
fn members_of_groups() {
    let world = world(1, WorldOptions::default());
    let rank = world.rank(0).unwrap();
    let sum = || requests::all_reduce(InPlace(on(rank.device(), &[1f32; 8])), ReduceOp::Sum);
    let failed = rank.submit((sum(), Mine(sum(), Wrong::Not))).wait().unwrap_err();
    assert_eq!(failed.reason, Reason::Refused);
    assert!(failed.error.to_string().starts_with("mine: it cannot be part of a group"), "{failed}");
    let short = requests::all_reduce((on(rank.device(), &[1f32; 8]), on(rank.device(), &[1f32; 7])), ReduceOp::Sum);
    let failed = rank.submit((sum(), short)).wait().unwrap_err();
    assert!(failed.error.to_string().ends_with("in member 1 of the group"), "{failed}");
    assert_eq!((failed.reason, world.metrics().enqueued), (Reason::Refused, 0));
}

/// What is full, old, down or over says of what, and what to do.
#[test]
fn why_there_is_no_answer() {
    let world = world(1, WorldOptions::new().with_queue(1).with_overflow(Overflow::Refuse));
    let rank = world.rank(0).unwrap();
    let said = |rank: &Rank| rank.submit(requests::barrier()).wait().unwrap_err().error.to_string();
    let (let_go, held) = hold(&rank);
    let waits = rank.submit(requests::barrier());
    assert_eq!(said(&rank), "barrier: rank 0: its queue is full: there is room for 1 requests");
    assert_eq!(
        world.barrier().wait().unwrap_err().error.to_string(),
        "barrier: rank 0: its queue is full: there is room for 1 requests"
    );
    drop(let_go);
    held.wait().unwrap();
    waits.wait().unwrap();
    world.fail("a test");
    let down = said(&rank);
    assert!(down.starts_with("barrier: ") && down.ends_with("the world is down until it is rebuilt"), "{down}");
    world.rebuild(Members::Same).unwrap();
    let old = "barrier: rank 0 of generation 1: the world is in generation 2, whose ranks World::rank gives";
    assert_eq!(said(&rank), old);
    let rank = world.rank(0).unwrap();
    world.close_timeout(slower(20.0)).unwrap();
    assert_eq!(said(&rank), "barrier: the world was closed");
}

/// A completion whose drop panics, wherever the last request has it.
#[derive(Debug)]
struct Falls;

impl Completion for Falls {
    fn watch(&self, work: InFlight) {
        work.finish();
    }
}

impl Drop for Falls {
    fn drop(&mut self) {
        panic!("a drop of a test");
    }
}

#[test]
fn a_completion_whose_drop_panics() {
    let world = world(1, WorldOptions::default());
    let rank = world.rank(0).unwrap();
    let (let_go, held) = hold(&rank);
    drop(rank.clone().with_completion(Arc::new(Falls)).submit(requests::barrier()));
    world.fail("a test");
    drop(let_go);
    drop(held);
    // The thread that looks after the world is there.
    world.rebuild(Members::Same).unwrap();
    let rank = world.rank(0).unwrap();
    let (_let_go, _held) = hold(&rank);
    let late = rank
        .with_timeout(Duration::from_millis(50))
        .submit(requests::barrier())
        .wait_timeout(slower(20.0))
        .expect("an answer");
    assert_eq!(late.unwrap_err().reason, Reason::Late);
}

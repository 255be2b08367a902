//! What is not wanted any more.

use std::time::Duration;

use gpucomm::world::{Rank, Reason, WorldOptions, requests};
use gpucomm::{InPlace, ReduceOp};

use super::support::{eventually, hold, on, values, world};

#[test]
fn what_has_not_begun() {
    let world = world(1, WorldOptions::default());
    let rank = world.rank(0).unwrap();
    let (let_go, held) = hold(&rank);
    let cancelled = rank.all_reduce(InPlace(on(rank.device(), &[7u8; 3])), ReduceOp::Sum);
    let dropped = rank.all_reduce(InPlace(on(rank.device(), &[7u8; 3])), ReduceOp::Sum);
    let kept = rank.all_reduce(InPlace(on(rank.device(), &[8u8; 3])), ReduceOp::Sum);
    assert!(cancelled.cancel() && cancelled.is_ready());
    drop(dropped);
    let failed = cancelled.wait().unwrap_err();
    assert_eq!((failed.reason, values(&failed.buffers.unwrap())), (Reason::Cancelled, vec![7; 3]));
    let kept = kept.wait_timeout(Duration::from_millis(20)).unwrap_err();
    assert!(!kept.is_ready());
    drop(let_go);
    held.wait().unwrap();
    assert_eq!(values(&kept.wait().unwrap()), [8; 3]);
    let metrics = world.metrics();
    assert_eq!((metrics.cancelled, metrics.done, metrics.enqueued), (1, 3, 3));
}

/// A rank whose answer is dropped, or that cancels alone, takes part all the same: its next collective is the next
/// one of the others.
#[test]
fn one_rank_alone() {
    let world = world(3, WorldOptions::default());
    for round in 0..20u32 {
        let held: Vec<_> = world.ranks().iter().map(hold).collect();
        let ask = |value: u32| {
            let one = |rank: &Rank| rank.all_reduce(InPlace(on(rank.device(), &[value; 5])), ReduceOp::Sum);
            world.ranks().iter().map(one).collect::<Vec<_>>()
        };
        let (mut first, second) = (ask(round), ask(1000 + round));
        let size = u32::try_from(world.size()).unwrap();
        let which = round as usize % world.size();
        let one = first.remove(which);
        match round % 3 {
            0 => drop(one),
            1 => {
                assert_eq!(one.cancel(), world.size() == 1);
                first.push(one);
            }
            _ => drop(one.wait_timeout(Duration::from_millis(1)).unwrap_err()),
        }
        for (let_go, answer) in held {
            drop(let_go);
            answer.wait().unwrap();
        }
        if world.size() > 1 {
            first.into_iter().for_each(|sum| assert_eq!(values(&sum.wait().unwrap()), [round * size; 5]));
        }
        second.into_iter().for_each(|sum| assert_eq!(values(&sum.wait().unwrap()), [(1000 + round) * size; 5]));
    }
    eventually("all are answered", || world.metrics().pending == 0);
}

/// Requests through some of the ranks are not cancelled: the others would miss them.
#[test]
fn some_ranks() {
    let world = world(2, WorldOptions::default());
    if world.size() < 2 {
        return;
    }
    let last = world.ranks().pop().unwrap();
    let (let_go, held) = hold(&last);
    let asked = world.submit_through(std::slice::from_ref(&last), [requests::barrier()]);
    assert!(!asked.cancel());
    drop(let_go);
    held.wait().unwrap();
    world.rank(0).unwrap().barrier().wait().unwrap();
    asked.wait().unwrap();
}

#[test]
fn all_ranks_or_none() {
    let world = world(3, WorldOptions::default());
    // None may begin before it is cancelled.
    let held: Vec<_> = world.ranks().iter().map(hold).collect();
    let (cancelled, dropped) = (world.barrier(), world.barrier());
    assert!(cancelled.cancel());
    assert_eq!(cancelled.wait().unwrap_err().reason, Reason::Cancelled);
    drop(dropped);
    for (let_go, answer) in held {
        drop(let_go);
        answer.wait().unwrap();
    }
    world.barrier().wait().unwrap();
    let metrics = world.metrics();
    let size = u64::try_from(world.size()).unwrap();
    assert_eq!((metrics.cancelled, metrics.done), (size, 3 * size));
    let last = world.rank(world.size() - 1).unwrap();
    if world.size() > 1 {
        // One has begun, so none is cancelled.
        let (let_go, answer) = hold(&last);
        let barrier = world.barrier();
        eventually("the first begins", || world.rank(0).unwrap().queued() == 0);
        eventually("it is too late", || !barrier.cancel());
        drop(let_go);
        answer.wait().unwrap();
        barrier.wait().unwrap();
        world.barrier().wait().unwrap();
    }
}

/// What has begun goes on, and its buffers are dropped when it is done.
#[test]
fn what_has_begun() {
    let world = world(2, WorldOptions::default());
    for _ in 0..100 {
        let answers: Vec<_> = world
            .ranks()
            .iter()
            .map(|rank| rank.all_reduce(InPlace(on(rank.device(), &[1u32; 4096])), ReduceOp::Sum))
            .collect();
        let barrier = world.barrier();
        let mut answers = answers.into_iter();
        // When the first is done, those of the other ranks have begun.
        answers.next().unwrap().wait().unwrap();
        drop(answers);
        barrier.wait().unwrap();
    }
    eventually("all are answered", || world.metrics().pending == 0);
    world
        .rank(0)
        .unwrap()
        .submit(std::iter::repeat_with(requests::barrier).take(0).collect::<Vec<_>>())
        .wait()
        .unwrap();
}

/// The thread of a rank may see before who cancels that others of the request were cancelled.
#[test]
fn seen_by_the_rank_first() {
    let world = world(2, WorldOptions::default());
    if world.size() < 2 {
        return;
    }
    let held: Vec<_> = world.ranks().iter().map(hold).collect();
    let answers = world.barrier().into_answers().unwrap();
    assert!(answers[0].cancel());
    held.into_iter().for_each(|(let_go, held)| {
        drop(let_go);
        held.wait().unwrap();
    });
    eventually("the other one is cancelled", || answers[1].is_ready());
    assert!(answers[1].cancel());
    answers.into_iter().for_each(|answer| assert_eq!(answer.wait().unwrap_err().reason, Reason::Cancelled));
}

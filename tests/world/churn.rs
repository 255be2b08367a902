//! Worlds that fail and are rebuilt, end and begin, while tasks go on: `GPUCOMM_RANDOM_SECONDS` says for how long, `GPUCOMM_TEST_SEED` with what.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use gpucomm::exchange::Threads;
use gpucomm::world::{Members, Overflow, Reason, WhileDown, World, WorldOptions, health::Phase, requests};
use gpucomm::{InPlace, ReduceOp, nccl::InitOptions};

use super::ends::apart;
use super::support::{completion, drawn, eventually, on, slower, values, world};

fn options(rng: &mut Rng) -> WorldOptions {
    WorldOptions::new()
        .with_completion(completion(rng))
        .with_queue(rng.usize(1..5))
        .with_overflow(if rng.bool() { Overflow::Wait } else { Overflow::Refuse })
        .with_while_down(if rng.bool() { WhileDown::Refuse } else { WhileDown::Queue })
        .with_spin(Duration::from_micros(if rng.bool() { 0 } else { 100 }))
        .with_sequenced(rng.bool())
        .with_timeout(slower(10.0))
        .with_init(InitOptions::new().with_timeout(slower(10.0)))
}

/// Asks until it is told to end. Each answer is right, or says why there is none, and has the buffers.
fn ask(world: &World, mut rng: Rng, ends: &AtomicBool, done: &AtomicU64) {
    while !ends.load(Ordering::Relaxed) {
        let value = rng.u32(..1000);
        let ranks = world.ranks();
        let own: Vec<_> = ranks.iter().map(|rank| InPlace(on(rank.device(), &[value; 5]))).collect();
        let size = u32::try_from(own.len()).unwrap();
        let asked = world.all_reduce(own, ReduceOp::Sum);
        let cancelled = rng.u8(..8) == 0 && asked.cancel();
        let start = Instant::now();
        match asked.wait() {
            Ok(sums) => {
                assert!(!cancelled);
                sums.iter().for_each(|sum| assert_eq!(values(sum), [value * size; 5]));
                done.fetch_add(1, Ordering::Relaxed);
            }
            Err(failed) => {
                assert!(!cancelled || failed.reason == Reason::Cancelled, "{:?}: {failed}", failed.reason);
                assert!(failed.buffers.is_some_and(|all| all.iter().all(Option::is_some)), "{}", failed.error);
            }
        }
        assert!(start.elapsed() < slower(20.0), "{:?}", start.elapsed());
    }
}

#[test]
fn while_it_fails_and_is_rebuilt() {
    let (seed, time) = drawn();
    let mut rng = Rng::with_seed(seed);
    let end = Instant::now() + time;
    while Instant::now() < end {
        let owned = world(rng.usize(1..=3), options(&mut rng));
        let world = &owned;
        let (ends, done) = (&AtomicBool::new(false), &AtomicU64::new(0));
        let rounds = rng.usize(1..6);
        std::thread::scope(|scope| {
            for _ in 0..rng.usize(1..4) {
                let rng = rng.fork();
                scope.spawn(move || ask(world, rng, ends, done));
            }
            for round in 0..rounds {
                std::thread::sleep(Duration::from_micros(rng.u64(..20_000)));
                world.fail("a test");
                // Two may do it at the same time.
                let (one, other) = (scope.spawn(|| world.rebuild(Members::Same)), world.rebuild(Members::Survivors));
                one.join().unwrap().unwrap();
                other.unwrap();
                assert!(world.health().generation >= round as u64 + 2 && world.health().phase == Phase::Up);
            }
            ends.store(true, Ordering::Relaxed);
        });
        eventually("all are answered", || world.metrics().pending == 0);
        let metrics = world.metrics();
        assert_eq!(metrics.submitted, metrics.done + metrics.failed + metrics.cancelled, "{metrics:?}");
        assert!(done.load(Ordering::Relaxed) * world.size() as u64 <= metrics.done);
        assert_eq!(metrics.rebuilt, rounds as u64);
        // What is under way as it ends is done, or told so.
        let asked = world.barrier();
        let aborts = rng.bool();
        let ended = if aborts { owned.abort("a test") } else { owned.close_timeout(slower(20.0)) };
        ended.unwrap();
        match asked.wait_timeout(slower(5.0)).expect("an answer") {
            Ok(_) => {}
            // What was cancelled keeps its place until its rank comes to it.
            Err(failed) => assert!(aborts || failed.reason == Reason::Full, "{}", failed.error),
        }
    }
}

/// One rank of each after another leaves, and those that are left go on.
#[test]
fn fewer_and_fewer() {
    let mut rng = Rng::with_seed(drawn().0);
    let place = Threads::new(4);
    let common = options(&mut rng).with_while_down(WhileDown::Refuse).with_overflow(Overflow::Wait);
    let Ok(mut worlds) = apart(&place, &vec![common; 4]) else { return };
    while worlds.len() > 1 {
        let leaves = worlds.swap_remove(rng.usize(..worlds.len()));
        // Who leaves in good order brings nobody down.
        leaves.fail("it leaves");
        std::thread::scope(|scope| {
            scope.spawn(move || drop(leaves));
            for world in &worlds {
                scope.spawn(move || {
                    eventually("it hears of it", || world.health().phase == Phase::Down);
                    world.rebuild(Members::Survivors).unwrap();
                });
            }
        });
        let size = worlds.len();
        let asked: Vec<_> = worlds.iter().map(|world| (world.size(), world.barrier())).collect();
        asked.into_iter().for_each(|(found, asked)| {
            assert_eq!(found, size);
            asked.wait().unwrap();
        });
    }
    let last = worlds.pop().unwrap();
    last.rank(0).unwrap().submit(requests::barrier()).wait().unwrap();
}

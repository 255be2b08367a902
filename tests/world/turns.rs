//! The log in the store, in which the turns of lanes stand for ranks of several processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use gpucomm::exchange::{Exchange, Threads};
use gpucomm::nccl::InitOptions;
use gpucomm::world::{
    Answer, Lane, Reason, World, WorldOptions,
    health::Phase,
    requests::{At, Request},
};
use gpucomm::{Device, Error, Result};

use super::hooked_store::HookedStore;
use super::stores::Faulty;
use super::support::{eventually, slower, turn};

/// More entries than the log kept before its ranks published how far they have read.
const MANY: usize = 4096 + 600;

/// A request that puts nothing on the stream.
struct Nothing;

impl Request for Nothing {
    type Back = ();

    fn operation(&self) -> &'static str {
        "nothing"
    }

    fn enqueue(&mut self, _: &At<'_>) -> Result<()> {
        Ok(())
    }

    fn into_back(self) {}
}

fn is_entry(key: &str) -> bool {
    key.contains("world/turn/")
}

fn slow() -> Error {
    Error::Timeout { operation: "Faulty", timeout: Duration::ZERO, detail: "a test".to_owned(), rank: None, peer: None }
}

/// Two worlds of one rank each, over stores in which `fault` is called before each operation of a rank; and their exchanges.
fn two(
    fault: impl Fn(usize, &str, &str) -> Result<()> + Send + Sync + Clone + 'static,
) -> Option<([World; 2], [Exchange; 2])> {
    turn();
    if Device::count().unwrap() < 2 {
        return None;
    }
    let place = Threads::new(2);
    let join = |rank: usize| {
        let fault = fault.clone();
        let store = Faulty(place.store(rank).unwrap(), move |operation: &str, key: &str| fault(rank, operation, key));
        let exchange = Exchange::join(HookedStore(store)).unwrap();
        let init = InitOptions::new().with_timeout(slower(20.0));
        let options = WorldOptions::new().with_sequenced(true).with_timeout(slower(20.0)).with_init(init);
        // SAFETY: both ranks do the same.
        (unsafe { World::join(exchange.clone(), Device::new(rank).unwrap(), &options) }.unwrap(), exchange)
    };
    let ((one, own), (other, its)) = std::thread::scope(|scope| {
        let other = scope.spawn(|| join(1));
        (join(0), other.join().unwrap())
    });
    Some(([one, other], [own, its]))
}

/// Rank 0 does so many requests of a lane of its own, one after the other.
fn alone(world: &World, requests: usize) {
    let rank = world.rank(0).unwrap().with_lane(&Lane::of("alone", [0]).unwrap());
    (0..requests).for_each(|_| rank.submit(Nothing).wait().unwrap());
}

fn together(worlds: [&World; 2]) {
    let answers: Vec<_> =
        worlds.iter().enumerate().map(|(at, world)| world.rank(at).unwrap().submit(Nothing)).collect();
    answers.into_iter().for_each(|answer| answer.wait().unwrap());
}

/// A rank that is paused finds all turns when it goes on. Then they leave the store.
#[test]
fn stay_until_all_ranks_have_read_them() {
    static PAUSED: AtomicBool = AtomicBool::new(false);
    static STORED: AtomicI64 = AtomicI64::new(0);
    let worlds = two(|rank, operation, key| {
        if !is_entry(key) {
            return Ok(());
        }
        match operation {
            "set" => drop(STORED.fetch_add(1, Ordering::Relaxed)),
            "delete" => drop(STORED.fetch_sub(1, Ordering::Relaxed)),
            "get" if rank == 1 && PAUSED.load(Ordering::Relaxed) => {
                std::thread::sleep(Duration::from_millis(10));
                return Err(slow());
            }
            _ => {}
        }
        Ok(())
    });
    let Some((worlds, _)) = worlds else { return };
    together([&worlds[0], &worlds[1]]);
    PAUSED.store(true, Ordering::Relaxed);
    alone(&worlds[0], MANY);
    PAUSED.store(false, Ordering::Relaxed);
    together([&worlds[0], &worlds[1]]);
    eventually("the entries are removed", || {
        alone(&worlds[0], 64);
        STORED.load(Ordering::Relaxed) < 1024
    });
}

/// A world goes on if its store does not remove entries in time. They are removed later.
#[test]
fn of_which_the_store_removes_none_in_time() {
    static FAILED: AtomicUsize = AtomicUsize::new(0);
    static REMOVED: AtomicUsize = AtomicUsize::new(0);
    let worlds = two(|_, operation, key| {
        if operation == "delete" && is_entry(key) {
            if FAILED.load(Ordering::Relaxed) < 3 {
                FAILED.fetch_add(1, Ordering::Relaxed);
                return Err(slow());
            }
            REMOVED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    });
    let Some((worlds, _)) = worlds else { return };
    alone(&worlds[0], MANY);
    eventually("entries are removed", || {
        alone(&worlds[0], 64);
        REMOVED.load(Ordering::Relaxed) > 256
    });
    assert_eq!(FAILED.load(Ordering::Relaxed), 3);
    together([&worlds[0], &worlds[1]]);
    assert!(worlds.iter().all(|world| world.health().phase == Phase::Up));
}

/// The answer of a request that needs a turn of rank 0, which has left in good order.
fn is_gone(answer: Answer<()>) {
    let failed = answer.wait_timeout(slower(60.0)).expect("an answer at once").unwrap_err();
    assert!(matches!(&failed.error, Error::Departed { operation: "nothing", rank: 0, .. }), "{failed}");
    assert_eq!(failed.reason, Reason::Closed);
}

/// A request that needs a turn of a rank that has left in good order fails at once. The others go on.
#[test]
fn of_a_rank_that_has_left() {
    let Some(([first, second], _)) = two(|_, _, _| Ok(())) else { return };
    let rank = second.rank(1).unwrap().with_timeout(slower(600.0));
    let lanes = [Lane::new("both"), Lane::of("own", [1]).unwrap()];
    let ask = |lane: usize| rank.clone().with_lane(&lanes[lane]).submit(Nothing);
    // The turns of these are in the log before rank 0 leaves.
    let done = [ask(0), rank.submit(Nothing)];
    let others = first.rank(0).unwrap();
    for answer in [others.clone().with_lane(&lanes[0]).submit(Nothing), others.submit(Nothing)] {
        answer.wait().unwrap();
    }
    let waits = [ask(0), rank.submit(Nothing)];
    first.close_timeout(slower(20.0)).unwrap();
    done.into_iter().for_each(|answer| answer.wait().unwrap());
    waits.into_iter().for_each(is_gone);
    // It is known now.
    is_gone(ask(0));
    is_gone(rank.submit(Nothing));
    ask(1).wait().unwrap();
    assert_eq!((second.health().phase, second.metrics().pending), (Phase::Up, 0));
}

/// The others hear that a rank has left after a time in which the store takes no word of it.
#[test]
fn of_a_rank_whose_end_the_store_does_not_take_at_once() {
    static REFUSED: AtomicUsize = AtomicUsize::new(0);
    let worlds = two(|_, operation, key| {
        if operation == "set" && key.contains("world/end/0") && REFUSED.fetch_add(1, Ordering::Relaxed) < 2 {
            return Err(slow());
        }
        Ok(())
    });
    let Some(([first, second], _exchanges)) = worlds else { return };
    together([&first, &second]);
    first.close_timeout(slower(20.0)).unwrap();
    is_gone(second.rank(1).unwrap().with_timeout(slower(600.0)).submit(Nothing));
    assert_eq!((REFUSED.load(Ordering::Relaxed), second.health().phase), (3, Phase::Up));
}

/// A user may remove what the store lies in.
#[test]
fn a_world_that_has_ended_uses_its_store_no_more() {
    for by_drop in [false, true] {
        let owners = Arc::new(());
        let owner = Arc::clone(&owners);
        let Some((worlds, exchanges)) = two(move |_, _, _| {
            let _ = &owner;
            Ok(())
        }) else {
            return;
        };
        together([&worlds[0], &worlds[1]]);
        drop(exchanges);
        std::thread::scope(|scope| {
            for world in worlds {
                scope.spawn(move || {
                    if by_drop {
                        drop(world);
                    } else {
                        world.close_timeout(slower(10.0)).unwrap();
                    }
                });
            }
        });
        assert_eq!(Arc::strong_count(&owners), 1, "a store is still there, by_drop: {by_drop}");
    }
}

//! Several worlds of one exchange.

use std::time::Duration;

use gpucomm::exchange::{Exchange, Threads};
use gpucomm::nccl::InitOptions;
use gpucomm::world::{Lane, Members, World, WorldOptions, health::Phase, requests};
use gpucomm::{Device, Result};

use super::support::{eventually, slower, turn};

/// Runs a rank on each of two devices, with an exchange of both. Does nothing if there is one device.
pub fn exchanges(run: impl Fn(usize, &Exchange) + Sync) {
    turn();
    if Device::count().unwrap() < 2 {
        return;
    }
    let place = Threads::new(2);
    std::thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            let (run, store) = (&run, place.store(rank).unwrap());
            scope.spawn(move || run(rank, &Exchange::join(store).unwrap()))
        });
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
    });
}

fn join(exchange: &Exchange, sequenced: bool) -> World {
    let limit = slower(20.0);
    let init = InitOptions::new().with_timeout(limit);
    let options = WorldOptions::new().with_sequenced(sequenced).with_timeout(limit).with_init(init);
    // SAFETY: both ranks do the same.
    let world: Result<_> = unsafe { World::join(exchange.clone(), Device::new(exchange.rank()).unwrap(), &options) };
    world.unwrap()
}

/// The turns of the first world are not those of the second.
#[test]
fn one_after_the_other() {
    exchanges(|rank, exchange| {
        for lanes in [["a", "b"], ["b", "a"], ["c", "a"]] {
            let world = join(exchange, true);
            let own = world.rank(rank).unwrap();
            for name in lanes {
                own.clone().with_lane(&Lane::new(name)).submit(requests::barrier()).wait().unwrap();
            }
            own.submit(requests::barrier()).wait().unwrap();
            world.close_timeout(slower(20.0)).unwrap();
        }
    });
}

#[test]
fn at_the_same_time() {
    exchanges(|rank, exchange| {
        let worlds = [join(exchange, true), join(exchange, true)];
        let lanes = ["a", "b"].map(Lane::new);
        for round in 0..20 {
            // The worlds have requests in different lanes. Both ranks use the worlds in the same order.
            for (world, lane) in worlds.iter().zip([round % 2, 0]) {
                world.rank(rank).unwrap().with_lane(&lanes[lane]).submit(requests::barrier()).wait().unwrap();
            }
        }
        let [first, second] = worlds;
        if rank == 0 {
            first.fail("the first world of a test");
        }
        eventually("the first world is down", || first.health().phase == Phase::Down);
        assert!(first.health().cause.unwrap().to_string().contains("the first world of a test"));
        // Longer than the pause between two looks into the store.
        std::thread::sleep(Duration::from_millis(600));
        second.barrier().wait().unwrap();
        assert_eq!(second.health().phase, Phase::Up);
        // Neither rank ends its world before the other one has looked at it.
        exchange.barrier().unwrap();
    });
}

/// A world begins well after another one of its exchange has failed, and both can be rebuilt.
#[test]
fn after_a_failure() {
    exchanges(|rank, exchange| {
        let fail = |world: &World| {
            world.barrier().wait().unwrap();
            // Both ranks have their answers.
            exchange.barrier().unwrap();
            if rank == 1 {
                world.fail("a test");
            }
            eventually("both ranks know of it", || world.health().phase == Phase::Down);
        };
        for _ in 0..2 {
            let world = join(exchange, true);
            fail(&world);
            world.rebuild(Members::Same).unwrap();
            fail(&world);
            drop(world);
        }
        let world = join(exchange, true);
        for _ in 0..3 {
            world.barrier().wait().unwrap();
        }
        exchange.barrier().unwrap();
    });
}

//! Threads of ranks that look for requests, and for what is done, instead of sleeping.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpucomm::world::{
    World, WorldOptions,
    completion::{Blocking, Completion, HostCallback, Polling},
};
use gpucomm::{InPlace, ReduceOp};

use super::support::{hold, on, slower, values, world};

/// For longer than a test takes.
const SPIN: Duration = Duration::from_secs(1000);

fn spinning(completion: impl Completion + 'static) -> World {
    // Each has a core for itself, nearly.
    world(2, WorldOptions::new().with_spin(SPIN).with_completion(Arc::new(completion)))
}

#[test]
fn with_each_completion() {
    for world in [
        spinning(Polling::default()),
        spinning(Polling::new().with_interval(Duration::from_secs(1000))),
        spinning(HostCallback),
        spinning(Blocking),
    ] {
        let (size, start) = (u32::try_from(world.size()).unwrap(), Instant::now());
        for round in 0..50 {
            let forms = world.devices().into_iter().map(|device| InPlace(on(device, &[round; 9])));
            for x in world.all_reduce(forms, ReduceOp::Sum).wait().unwrap() {
                assert_eq!(values(&x), [size * round; 9]);
            }
        }
        println!("{:?}", start.elapsed());
    }
}

/// Somebody else looks where the thread of a rank is at something else.
#[test]
fn while_the_thread_is_held_up() {
    let world = spinning(Polling::default());
    for _ in 0..20 {
        let forms = world.devices().into_iter().map(|device| InPlace(on(device, &[1u32; 9])));
        let sum = world.all_reduce(forms, ReduceOp::Sum);
        let held: Vec<_> = world.ranks().iter().map(hold).collect();
        let sum =
            sum.wait_timeout(slower(10.0)).expect("an answer, though the threads of the ranks are held up").unwrap();
        drop(sum);
        for (let_go, answer) in held {
            drop(let_go);
            answer.wait().unwrap();
        }
    }
}

/// One that slept looks again, and one that has looked sleeps.
#[test]
fn by_turns() {
    let world = world(2, WorldOptions::new().with_spin(Duration::from_micros(300)));
    for _ in 0..200 {
        std::thread::sleep(Duration::from_micros(fastrand::u64(..1000)));
        world.barrier().wait().unwrap();
    }
}

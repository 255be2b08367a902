//! Deadlines are kept, whoever has the request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use gpucomm::exchange::{Exchange, Threads};
use gpucomm::nccl::InitOptions;
use gpucomm::world::{
    Members, Rank, Reason, Rebuild, WhileDown, World, WorldOptions,
    completion::{Completion, InFlight, Polling},
    health::Phase,
    requests,
};
use gpucomm::{Device, DeviceBuffer, Error, InPlace, ReduceOp, Stream};

use super::hooked_store::HookedStore;
use super::stores::Faulty;
use super::support::{Hold, eventually, hold, on, slower, turn, world};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(300);

/// What is waited for, and how long that took.
fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (run(), start.elapsed())
}

/// The ranks meet when the first request is enqueued: nobody else comes.
#[test]
fn as_ranks_meet() {
    let world = world(2, WorldOptions::default());
    if world.size() < 2 {
        return;
    }
    let rank = world.rank(0).unwrap().with_timeout(Duration::from_millis(100));
    let (outcome, took) = timed(|| rank.all_reduce(InPlace(on(rank.device(), &[1u8])), ReduceOp::Sum).wait());
    let failed = outcome.unwrap_err();
    assert!(failed.reason == Reason::Late && took < slower(20.0), "{failed}, after {took:?}");
    eventually("it is down", || world.health().phase == Phase::Down);
}

#[test]
fn seldom_polled() {
    let completion = Arc::new(Polling::new().with_interval(Duration::from_secs(3600)));
    let world = world(2, WorldOptions::new().with_completion(completion));
    let (_, took) = timed(|| world.barrier().wait().unwrap());
    assert!(took < slower(20.0), "{took:?}");
    if world.size() > 1 {
        let rank = world.rank(0).unwrap().with_timeout(Duration::from_millis(50));
        let (failed, took) = timed(|| rank.submit(requests::barrier()).wait().unwrap_err());
        assert!(failed.reason == Reason::Late && took < slower(20.0), "{failed}, after {took:?}");
    }
}

#[derive(Debug)]
struct Keeps(Sender<InFlight>);

impl Completion for Keeps {
    fn watch(&self, work: InFlight) {
        self.0.send(work).unwrap();
    }
}

/// Whoever has them does not look at them.
#[test]
fn kept_by_a_completion() {
    let world = world(1, WorldOptions::default());
    world.barrier().wait().unwrap();
    let (sender, receiver) = channel();
    let rank = world.rank(0).unwrap().with_completion(Arc::new(Keeps(sender))).with_timeout(Duration::from_millis(50));
    let answers = [rank.submit(requests::barrier()), rank.submit(requests::barrier())];
    for answer in answers {
        let failed = answer.wait_timeout(slower(30.0)).expect("an answer").unwrap_err();
        assert!(failed.reason == Reason::Late && failed.buffers.is_some(), "{failed}");
    }
    // What comes of them then does no harm. One that took too long to enqueue it was never given.
    if let Ok(work) = receiver.recv_timeout(slower(1.0)) {
        work.finish();
    }
    drop(receiver);
    world.rebuild(Members::Same).unwrap();
    world.barrier().wait().unwrap();
}

/// The end of a generation that is late takes two seconds at most, whatever the device does.
#[test]
fn behind_a_device_that_is_held_up() {
    let world = world(1, WorldOptions::default());
    world.barrier().wait().unwrap();
    let device = world.devices()[0];
    let (mut x, stream) = (on(device, &[1u8]), Stream::new(device).unwrap());
    let (let_go, until) = channel::<()>();
    stream.launch_host(move || _ = until.recv()).unwrap();
    x.fill(&stream, 2).unwrap();
    let timeout = slower(1.0);
    let rank = world.rank(0).unwrap().with_timeout(timeout);
    let (failed, took) = timed(|| rank.all_reduce(InPlace(x), ReduceOp::Sum).wait().unwrap_err());
    drop(let_go);
    assert!(failed.reason == Reason::Late && took < timeout + slower(3.5), "{failed}, after {took:?}");
}

#[test]
fn while_drained() {
    let world = world(1, WorldOptions::default());
    let rank = world.rank(0).unwrap();
    let (let_go, held) = hold(&rank);
    let late = rank.clone().with_timeout(Duration::from_millis(50)).submit(requests::barrier());
    std::thread::scope(|scope| {
        let ends = scope.spawn(|| world.close_timeout(slower(30.0)));
        let failed = late.wait_timeout(slower(20.0)).expect("an answer").unwrap_err();
        assert_eq!(failed.reason, Reason::Late);
        drop(let_go);
        ends.join().unwrap().unwrap();
    });
    held.wait().unwrap();
}

/// Nobody rebuilds what cannot be: what waits for it has its deadline all the same.
#[test]
fn while_it_is_rebuilt() {
    let place = gpucomm::exchange::Threads::new(2);
    let rebuild =
        Rebuild::Automatic { members: Members::Survivors, first: Duration::ZERO, longest: Duration::ZERO, attempts: 1 };
    let init = InitOptions::new().with_timeout(slower(4.0));
    let by_hand = WorldOptions::new().with_init(init).with_while_down(WhileDown::Queue);
    let options = [by_hand.clone().with_rebuild(rebuild), by_hand];
    let Ok(mut worlds) = super::ends::apart(&place, &options) else { return };
    // Who does not rebuild holds up the other one.
    let (other, one) = (worlds.pop(), worlds.remove(0));
    one.fail("a test");
    let (failed, took) = timed(|| {
        let rank = one.ranks().remove(0).with_timeout(Duration::from_millis(50));
        rank.submit(requests::barrier()).wait().unwrap_err()
    });
    assert!(matches!(failed.error, Error::Timeout { .. }) && took < slower(2.0), "{failed}, after {took:?}");
    drop(other);
}

/// The shortest and the longest times: each call does its work, or says that there was no time for it.
#[test]
fn from_no_time_to_the_longest() {
    turn();
    let devices = Device::all().unwrap();
    let devices = &devices[..devices.len().min(2)];
    for time in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(u64::MAX / 2), Duration::MAX] {
        let begin = Instant::now();
        // Each of the three times in turn, beside two that are long enough.
        for (start, request, end) in [(time, LONG, LONG), (LONG, time, LONG), (LONG, LONG, time)] {
            let init = InitOptions::new().with_timeout(start);
            let world = match World::new_with(devices, &WorldOptions::new().with_init(init).with_timeout(request)) {
                Ok(world) => world,
                Err(error) => {
                    assert!(start < LONG && matches!(error, Error::Timeout { .. }), "{time:?}: {error:?}");
                    continue;
                }
            };
            if let Err(failed) = world.barrier().wait_timeout(slower(20.0)).expect("an answer") {
                assert!(request < LONG && failed.reason == Reason::Late, "{time:?}: {failed}");
            }
            if let Err(error) = world.close_timeout(end) {
                assert!(end < LONG && matches!(error, Error::Timeout { .. }), "{time:?}: {error:?}");
            }
        }
        assert!(begin.elapsed() < slower(20.0), "{time:?}: {:?}", begin.elapsed());
    }
}

/// The requests of all ranks have one deadline, from where they are submitted: ranks whose queues are full are
/// not waited for one after the other, and the wait for room counts.
#[test]
fn of_a_request_for_all_ranks() {
    for gets_room in [false, true] {
        let world = world(2, WorldOptions::new().with_queue(1).with_timeout(LONG));
        let size = world.size();
        if size < 2 {
            return;
        }
        let limit = slower(3.0);
        let mut held: Vec<_> = world.ranks().iter().map(hold).collect();
        // The place in the queue of each rank. It does not end, either.
        let again = |rank: &Rank| {
            let (request, let_go, _) = Hold::new();
            (let_go, rank.submit(request))
        };
        let more: Vec<_> = world.ranks().iter().map(again).collect();
        let ranks: Vec<_> = world.ranks().into_iter().map(|rank| rank.with_timeout(limit)).collect();
        let (failed, took) = timed(|| {
            std::thread::scope(|scope| {
                let let_go = held.drain(..if gets_room { size } else { 1 }).collect::<Vec<_>>();
                scope.spawn(move || {
                    std::thread::sleep(limit.mul_f64(0.7));
                    drop(let_go);
                });
                world.submit_through(&ranks, ranks.iter().map(|_| requests::barrier())).wait().unwrap_err()
            })
        });
        assert_eq!(failed.reason, if gets_room { Reason::Late } else { Reason::Full }, "{failed}");
        assert!(took < limit.mul_f64(1.5), "{took:?}, with a limit of {limit:?}");
        drop((held, more));
    }
}

/// Two worlds of one rank each, in which `before` may hold up the stores.
fn two(timeout: Duration, before: impl Fn(usize) + Clone + Send + Sync + 'static) -> Option<[World; 2]> {
    turn();
    if Device::count().unwrap() < 2 {
        return None;
    }
    let place = Threads::new(2);
    let join = |rank: usize| {
        let before = before.clone();
        let store = Faulty(place.store(rank).unwrap(), move |_: &str, _: &str| {
            before(rank);
            Ok(())
        });
        let exchange = Exchange::join(HookedStore(store)).unwrap();
        let init = InitOptions::new().with_timeout(timeout);
        let options = WorldOptions::new().with_timeout(timeout).with_init(init);
        // SAFETY: both ranks do the same.
        unsafe { World::join(exchange, Device::new(rank).unwrap(), &options) }.unwrap()
    };
    Some(std::thread::scope(|scope| {
        let other = scope.spawn(|| join(1));
        [join(0), other.join().unwrap()]
    }))
}

/// The first operation waits inside NCCL for the other rank, which does not come.
#[test]
fn of_a_drop_while_a_rank_is_inside_nccl() {
    let timeout = slower(1.0);
    let Some([world, other]) = two(timeout, |_| ()) else { return };
    let stream = Stream::new(Device::new(0).unwrap()).unwrap();
    let x = DeviceBuffer::<f32>::zeroed(&stream, 4).unwrap();
    let answer = world.rank(0).unwrap().submit(requests::all_reduce(InPlace(x), ReduceOp::Sum));
    let ((), took) = timed(|| drop(world));
    assert!(took < 2 * timeout, "{took:?}");
    assert!(answer.wait().is_err());
    drop(other);
}

/// One of the store's answers that do not come is waited for once.
#[test]
fn of_a_drop_beside_a_store_that_does_not_answer() {
    let timeout = slower(1.0);
    let stalls = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&stalls);
    let before = move |rank: usize| {
        while rank == 0 && own.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let Some([world, other]) = two(timeout, before) else { return };
    stalls.store(true, Ordering::Release);
    let ((), took) = timed(|| drop(world));
    stalls.store(false, Ordering::Release);
    assert!(took < timeout + slower(0.5), "{took:?}");
    drop(other);
}

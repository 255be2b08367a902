//! Code of users that runs where it would find a lock held, and what comes out of turn.

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use gpucomm::world::{
    Lane, Members, Rank, Reason, Rebuild, WhileDown, World, WorldOptions,
    completion::{Completion, InFlight},
    health::HealthWatch,
    requests::{self, At, Request},
};
use gpucomm::{Communicator, Device, Error, InPlace, Result, Stream, UniqueId};

use super::support::{eventually, hold, on, slower, turn, world, zeroed};

/// What `run` gives, on a thread of its own, which may hang.
fn in_time<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (told, tells) = channel();
    std::thread::spawn(move || told.send(run()));
    tells.recv_timeout(slower(10.0)).unwrap_or_else(|_| panic!("{what}: it hangs"))
}

struct Owns(#[allow(dead_code)] HealthWatch);

impl Wake for Owns {
    fn wake(self: Arc<Self>) {}
}

/// A waker is the last that has a future with a watch of its own.
#[test]
fn a_waker_drops_a_watch() {
    let world = Arc::new(world(1, WorldOptions::default()));
    let own = Arc::clone(&world);
    in_time("two watches", move || {
        let mut watch = own.watch();
        let waker = Waker::from(Arc::new(Owns(own.watch())));
        let mut poll = |waker: &Waker| pin!(watch.changed()).poll(&mut Context::from_waker(waker)).is_pending();
        assert!(poll(&waker));
        drop(waker);
        assert!(poll(Waker::noop()));
    });
}

#[derive(Debug)]
struct HeldBack(Mutex<Sender<InFlight>>);

impl Completion for HeldBack {
    fn watch(&self, work: InFlight) {
        self.0.lock().unwrap().send(work).unwrap();
    }
}

/// What a completion has held back is looked at, though another one has come since that is not done.
#[test]
fn what_was_held_back_is_seen() {
    let world = world(2, WorldOptions::new().with_timeout(slower(20.0)));
    let ranks = world.ranks();
    if ranks.len() < 2 {
        return;
    }
    // Two that have met before: a message does not keep the thread of its rank.
    let (sent, received) =
        (ranks[1].send(on(ranks[1].device(), &[1u32; 4]), 0), ranks[0].recv(zeroed::<u32>(ranks[0].device(), 4), 1));
    assert!(sent.wait().is_ok() && received.wait().is_ok());
    let (sender, receiver) = channel();
    let first = ranks[0].clone().with_completion(Arc::new(HeldBack(Mutex::new(sender)))).submit(requests::barrier());
    let other = ranks[1].submit(requests::barrier());
    let second = ranks[0].recv(zeroed::<u32>(ranks[0].device(), 4), 1);
    let work = receiver.recv_timeout(slower(10.0)).unwrap();
    other.wait().unwrap();
    eventually("it is done", || work.query().unwrap());
    std::thread::sleep(Duration::from_millis(100));
    drop(work);
    let first = first.wait_timeout(slower(5.0)).expect("an answer to what is done").is_ok();
    let sent = ranks[1].send(on(ranks[1].device(), &[1u32; 4]), 0);
    assert!(first && sent.wait().is_ok() && second.wait().is_ok());
}

/// A pause that is never over.
#[test]
fn never_again() {
    let never = Duration::MAX;
    let rebuild = Rebuild::Automatic { members: Members::Same, first: never, longest: never, attempts: 9 };
    turn();
    let id = UniqueId::new().unwrap();
    // SAFETY: it is the only rank.
    let comm = unsafe { Communicator::init_rank(Device::new(0).unwrap(), 1, &id, 0).unwrap() };
    let options = WorldOptions::new().with_rebuild(rebuild).with_while_down(WhileDown::Queue);
    let world = World::of_communicator(comm, &options).unwrap();
    world.fail("a test");
    eventually("it was tried", || world.health().attempt.is_some());
    std::thread::sleep(Duration::from_millis(200));
    let answer = world.rank(0).unwrap().with_timeout(Duration::from_millis(100)).submit(requests::barrier());
    let answer = answer.wait_timeout(slower(5.0)).expect("somebody looks after deadlines");
    assert_eq!(answer.unwrap_err().reason, Reason::Late);
}

/// What was submitted to all ranks that will be is answered at its deadline.
#[test]
fn late_on_all_ranks_that_will_be() {
    let options = WorldOptions::new().with_while_down(WhileDown::Queue).with_timeout(Duration::from_millis(300));
    let world = world(2, options);
    world.fail("a test");
    let answer = world.barrier().wait_timeout(slower(5.0));
    assert_eq!(answer.expect("an answer at the deadline").unwrap_err().reason, Reason::Late);
}

struct Inline(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        let run = self.0.lock().unwrap().take();
        if let Some(run) = run {
            run();
        }
    }
}

/// Who waits for room asks all ranks for something at once, where it is woken.
#[test]
fn who_is_woken_submits_to_all() {
    let options = WorldOptions::new().with_sequenced(true).with_queue(2).with_timeout(slower(20.0));
    let world = Arc::new(world(2, options));
    let ranks: &'static [Rank] = Box::leak(world.ranks().into());
    let [first, second] = ranks else { return };
    let room = |rank: &'static Rank| match pin!(rank.room()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(place) => place.unwrap(),
        Poll::Pending => panic!("there is room"),
    };
    // In a lane of its own, so that the other rank waits for nothing, and is full.
    let (let_go, held) = hold(&first.clone().with_lane(&Lane::of("hold", [0]).unwrap()));
    let (own, places) = (room(first), [room(second), room(second)]);
    let submitting = Arc::clone(&world);
    let (told, tells) = channel();
    std::thread::spawn(move || told.send(submitting.barrier()));
    // It has a place at one rank, and waits for one at the other.
    eventually("it has a place", || first.queued() == 2);
    let again = Arc::clone(&world);
    let run = move || {
        drop(own);
        drop(again.barrier());
    };
    let waker = Waker::from(Arc::new(Inline(Mutex::new(Some(Box::new(run))))));
    assert!(pin!(first.room()).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(places);
    let barrier = tells.recv_timeout(slower(10.0)).expect("World::submit returns");
    drop(let_go);
    barrier.wait().unwrap();
    held.wait().unwrap();
}

struct Pooled(Arc<Mutex<Vec<u32>>>);

impl Request for Pooled {
    type Back = ();

    fn operation(&self) -> &'static str {
        "pooled"
    }

    fn enqueue(&mut self, _: &At<'_>) -> Result<()> {
        Ok(())
    }

    fn into_back(self) {
        self.0.lock().unwrap().push(1);
    }
}

/// What gives buffers back takes a lock, under which somebody else asks whether there is an answer.
#[test]
fn given_back_to_a_pool() {
    let world = Arc::new(world(1, WorldOptions::default()));
    let own = Arc::clone(&world);
    in_time("a pool", move || {
        let pool = Arc::new(Mutex::new(Vec::new()));
        let held = pool.lock().unwrap();
        let answer = own.rank(0).unwrap().submit(Pooled(Arc::clone(&pool)));
        eventually("there is an answer", || answer.is_ready());
        drop(held);
        answer.wait().unwrap();
    });
}

/// What begins as it is found to be too late has its buffers back.
#[test]
fn late_as_it_begins() {
    let world = world(1, WorldOptions::default());
    for round in 0..50 {
        // One that has begun, and is late on the device, brings the world down.
        world.rebuild(Members::Same).unwrap();
        let rank = world.rank(0).unwrap();
        let (let_go, held) = hold(&rank);
        let answer = rank.clone().with_timeout(Duration::from_millis(5)).submit(Plain);
        std::thread::sleep(Duration::from_micros(round * 100 + 2500));
        drop(let_go);
        let back = answer.wait().map_or_else(|failed| failed.buffers, Some);
        assert_eq!(back, Some(7));
        let _ = held.wait();
    }
}

struct Plain;

impl Request for Plain {
    type Back = u32;

    fn operation(&self) -> &'static str {
        "plain"
    }

    fn enqueue(&mut self, _: &At<'_>) -> Result<()> {
        Ok(())
    }

    fn into_back(self) -> u32 {
        7
    }
}

/// What is refused at once is counted.
#[test]
fn refused_on_all_ranks_is_counted() {
    let world = world(2, WorldOptions::default());
    let wrong = world.broadcast(world.devices().into_iter().map(|device| InPlace(on(device, &[1u32]))), 99);
    assert!(wrong.wait().is_err());
    let metrics = world.metrics();
    assert_eq!((metrics.submitted, metrics.failed), (2, 2));
}

/// Answers come from other threads. What would call NCCL is refused there, and nothing waits for the stream of the host function.
#[test]
fn within_a_host_function() {
    turn();
    let devices = Device::all().unwrap();
    let devices = &devices[..devices.len().min(2)];
    let start = || {
        let options = WorldOptions::new().with_timeout(slower(20.0));
        let world = World::new_with(devices, &options).unwrap();
        world.barrier().wait().unwrap();
        world
    };
    let stream = Stream::new(devices[0]).unwrap();
    let within = |run: Box<dyn FnOnce() -> Result<()> + Send>| {
        let (told, tells) = channel();
        stream.launch_host(move || told.send(run()).unwrap_or_default()).unwrap();
        let result = tells.recv_timeout(slower(10.0)).expect("the host function returns");
        stream.synchronize_timeout(slower(10.0)).unwrap();
        result
    };
    let refused = |operation: &str, result: Result<()>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(operation) && text.contains("a host function of a stream must not call NCCL"), "{text}");
    };
    let all = devices.to_vec();
    refused("Clique::init_all", within(Box::new(move || World::new(&all).map(drop))));
    let world = start();
    within(Box::new(move || {
        drop(world);
        Ok(())
    }))
    .unwrap();
    let world = start();
    refused("close", within(Box::new(move || world.close_timeout(slower(5.0)))));
    let world = Arc::new(start());
    let inside = Arc::clone(&world);
    let barrier = move || {
        inside.barrier().wait_timeout(slower(10.0)).expect("an answer").map(drop).map_err(|failed| failed.error)
    };
    within(Box::new(barrier)).unwrap();
    let inside = Arc::clone(&world);
    let rebuild = move || {
        inside.fail("a test");
        inside.rebuild(Members::Same)
    };
    refused("World::rebuild", within(Box::new(rebuild)));
    world.rebuild(Members::Same).unwrap();
    world.barrier().wait().unwrap();
}

//! Code of users that panics: every request is answered all the same, and the threads go on.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use gpucomm::world::{
    Members, Reason, World, WorldOptions,
    completion::{Completion, InFlight},
    health::Phase,
    requests::{self, At, Request},
};
use gpucomm::{Backend, Device, InPlace, ReduceOp, Result, Stream};

use super::support::{child, eventually, on, slower, values, world};

/// Where a request panics.
#[derive(Clone, Copy, PartialEq)]
enum Where {
    Nowhere,
    Back,
    Dropped,
}

/// It says when it has begun, and waits, where it has something for that.
struct Bad(Where, Option<(Sender<()>, Receiver<()>)>);

struct Back(Where);

impl Drop for Back {
    fn drop(&mut self) {
        if self.0 == Where::Dropped && std::thread::current().name().is_some_and(|name| name.starts_with("gpucomm")) {
            panic!("a buffer of a test is dropped");
        }
    }
}

impl Request for Bad {
    type Back = Back;

    fn operation(&self) -> &'static str {
        "bad"
    }

    fn enqueue(&mut self, _: &At<'_>) -> Result<()> {
        if let Some((begun, waits)) = self.1.take() {
            drop(begun);
            let _ = waits.recv_timeout(slower(20.0));
        }
        Ok(())
    }

    fn into_back(self) -> Back {
        assert!(self.0 != Where::Back, "a test gives nothing back");
        Back(self.0)
    }
}

#[derive(Debug)]
struct Panics;

impl Completion for Panics {
    fn watch(&self, _: InFlight) {
        panic!("a completion of a test");
    }
}

#[test]
fn a_request_that_gives_nothing_back() {
    let world = world(1, WorldOptions::default());
    let rank = world.rank(0).unwrap();
    let answer = rank.submit(Bad(Where::Back, None)).wait_timeout(slower(20.0)).expect("an answer");
    let failed = answer.err().expect("it has nothing");
    assert!(failed.reason == Reason::Failed && failed.buffers.is_none());
    assert!(failed.error.to_string().contains("panicked"), "{failed}");
    rank.submit(requests::barrier()).wait_timeout(slower(20.0)).expect("an answer").unwrap();
    // In the thread of the world, and of who cancels.
    let (let_go, held) = super::support::hold(&rank);
    let late = rank.clone().with_timeout(Duration::from_millis(20)).submit(Bad(Where::Back, None));
    let cancelled = rank.submit(Bad(Where::Back, None));
    assert!(cancelled.cancel());
    for (answer, reason) in [(late, Reason::Late), (cancelled, Reason::Cancelled)] {
        let failed = answer.wait_timeout(slower(20.0)).expect("an answer").err().expect("it has nothing");
        assert_eq!((failed.reason, failed.buffers.is_none()), (reason, true));
    }
    drop(let_go);
    held.wait().unwrap();
}

#[test]
fn buffers_that_nobody_wants() {
    let world = world(1, WorldOptions::default());
    let rank = world.rank(0).unwrap();
    for _ in 0..3 {
        let ((begun, begins), (let_go, waits)) = (channel(), channel());
        let answer = rank.submit(Bad(Where::Dropped, Some((begun, waits))));
        let _ = begins.recv();
        drop(answer);
        drop(let_go);
    }
    rank.submit(requests::barrier()).wait_timeout(slower(20.0)).expect("an answer").unwrap();
    eventually("all are answered", || world.metrics().pending == 0);
}

#[test]
fn a_completion() {
    let world = world(1, WorldOptions::default());
    let rank = world.rank(0).unwrap().with_completion(Arc::new(Panics));
    for _ in 0..3 {
        rank.submit(requests::barrier()).wait_timeout(slower(20.0)).expect("an answer").unwrap();
    }
}

struct Loud;

impl Wake for Loud {
    fn wake(self: Arc<Self>) {
        panic!("an executor of a test");
    }
}

#[test]
fn an_executor() {
    let world = world(1, WorldOptions::new().with_queue(1));
    let rank = world.rank(0).unwrap();
    let waker = Waker::from(Arc::new(Loud));
    let mut context = Context::from_waker(&waker);
    let mut watch = world.watch();
    assert!(matches!(std::pin::pin!(watch.changed()).poll(&mut context), Poll::Pending));
    // Who waits for room is woken by the thread of the rank.
    let (let_go, held) = super::support::hold(&rank);
    let waits = rank.submit(requests::barrier());
    let mut room = std::pin::pin!(rank.room());
    assert!(matches!(room.as_mut().poll(&mut context), Poll::Pending));
    drop(let_go);
    held.wait().unwrap();
    waits.wait_timeout(slower(20.0)).expect("an answer").unwrap();
    world.fail("a test");
    world.rebuild(Members::Same).unwrap();
    world.rank(0).unwrap().submit(requests::barrier()).wait_timeout(slower(20.0)).expect("an answer").unwrap();
}

/// A request that panics in what is asked by who submits it.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Operation,
    Device,
    Check,
}

impl Request for Asked {
    type Back = ();

    fn operation(&self) -> &'static str {
        assert!(!matches!(self, Self::Operation), "a name of a test");
        "asked"
    }

    fn device(&self) -> Option<Device> {
        assert!(!matches!(self, Self::Device), "a device of a test");
        None
    }

    fn check(&mut self, _: &At<'_>) -> Result<()> {
        assert!(!matches!(self, Self::Check), "a check of a test");
        Ok(())
    }

    fn enqueue(&mut self, _: &At<'_>) -> Result<()> {
        Ok(())
    }

    fn into_back(self) {}
}

/// The panic is of who submits, and leaves nothing: the world goes on, and has room for as many requests as before.
#[test]
fn what_is_asked_of_a_request() {
    let world = world(2, WorldOptions::new().with_queue(1));
    let ranks = world.ranks();
    for asked in [Asked::Operation, Asked::Device, Asked::Check] {
        let (one, all) = (|| drop(ranks[0].submit(asked)), || drop(world.submit(ranks.iter().map(|_| asked))));
        for thrown in [catch_unwind(AssertUnwindSafe(one)), catch_unwind(AssertUnwindSafe(all))] {
            let thrown = thrown.expect_err("the panic of the request");
            assert!(thrown.downcast_ref::<&str>().is_some_and(|said| said.ends_with("of a test")), "{asked:?}");
        }
        assert_eq!(world.metrics().pending, 0, "{asked:?}");
        world.barrier().wait_timeout(slower(20.0)).expect("an answer").unwrap();
    }
}

/// Aborts the communicator that it is to use.
struct Aborts;

impl Request for Aborts {
    type Back = ();

    fn operation(&self) -> &'static str {
        "aborts"
    }

    fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
        let _ = at.communicator().aborter().abort("a request of a test");
        Ok(())
    }

    fn into_back(self) {}
}

#[test]
fn a_request_that_aborts_the_communicator() {
    let world = world(2, WorldOptions::default());
    let aborts = world.submit(world.ranks().iter().map(|_| Aborts));
    // A stream with nothing on it may be seen to be done before the abort is.
    let _ = aborts.wait_timeout(slower(20.0)).expect("an answer");
    let failed = world.barrier().wait_timeout(slower(20.0)).expect("an answer").unwrap_err();
    assert!(failed.error.to_string().contains("a request of a test"), "{failed}");
    eventually("it is down", || world.health().phase == Phase::Down);
    world.rebuild(Members::Same).unwrap();
    world.barrier().wait_timeout(slower(20.0)).expect("an answer").unwrap();
}

/// Panics when it is dropped.
struct LoudDropped(Arc<AtomicUsize>);

impl Wake for LoudDropped {
    fn wake(self: Arc<Self>) {}
}

impl Drop for LoudDropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a waker of a test is dropped");
    }
}

#[test]
fn a_waker_that_is_dropped() {
    let world = world(2, WorldOptions::new().with_queue(1));
    let rank = world.rank(0).unwrap();
    let (let_go, held) = super::support::hold(&rank);
    let mut waits = rank.submit(Bad(Where::Nowhere, None));
    let (mut watch, mut room) = (world.watch(), Box::pin(rank.room()));
    let (opens, opened) = channel::<()>();
    let stream = Stream::new(rank.device()).unwrap();
    stream.launch_host(move || opened.recv_timeout(slower(20.0)).unwrap_or_default()).unwrap();
    let mut done = stream.done();
    let dropped = Arc::new(AtomicUsize::new(0));
    // Each has the last handle of its waker.
    let waker = || Waker::from(Arc::new(LoudDropped(Arc::clone(&dropped))));
    assert!(pin!(watch.changed()).poll(&mut Context::from_waker(&waker())).is_pending());
    assert!(room.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
    assert!(Pin::new(&mut waits).poll(&mut Context::from_waker(&waker())).is_pending());
    assert!(Pin::new(&mut done).poll(&mut Context::from_waker(&waker())).is_pending());
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    drop((let_go, opens));
    held.wait().unwrap();
    eventually("all but the watch are woken", || dropped.load(Ordering::SeqCst) == 3);
    assert!(waits.wait_timeout(slower(20.0)).is_ok());
    world.fail("a test");
    eventually("all are woken", || dropped.load(Ordering::SeqCst) == 4);
    drop((room, done));
    world.rebuild(Members::Same).unwrap();
    world.barrier().wait_timeout(slower(20.0)).expect("an answer").unwrap();
    super::block_on::block_on(stream.done()).unwrap();
}

/// Calls what it holds when its thread-local goes.
struct Last(Option<Box<dyn FnOnce()>>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|last| last());
    }
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last(None)) };
}

/// A world from its start to its end, with a request and another generation.
fn everything() {
    let devices = Device::all().unwrap();
    let world = World::new(&devices[..devices.len().min(2)]).unwrap();
    let sum = || {
        let forms: Vec<_> = world.devices().into_iter().map(|device| InPlace(on(device, &[1u32; 10]))).collect();
        let ranks = u32::try_from(forms.len()).unwrap();
        let sums = world.all_reduce(forms, ReduceOp::Sum).wait_timeout(slower(20.0)).expect("an answer").unwrap();
        sums.iter().for_each(|sum| assert_eq!(values(sum), [ranks; 10]));
    };
    sum();
    world.fail("a test");
    world.rebuild(Members::Same).unwrap();
    sum();
}

/// A world that a thread-local has, and calls in destructors of thread-locals, before and after those of the crate. In a process of its own: a panic there
/// ends it.
#[test]
fn thread_locals_and_the_end_of_a_process() {
    let said = child("panics::ends", &[]).succeeds("ends");
    assert!(said.contains("all is well at the end"), "{said}");
}

/// What the process still has when it exits.
static KEPT: Mutex<Option<World>> = Mutex::new(None);

extern "C" fn at_exit() {
    let world = KEPT.lock().unwrap().take().unwrap();
    // CUDA may have ended: all of it may be an error.
    let barrier = world.barrier().wait_timeout(slower(20.0)).expect("an answer");
    println!("a barrier: {:?}", barrier.map(|all| all.len()).map_err(|failed| failed.error));
    println!("a rebuild: {:?}", world.rebuild(Members::Same));
    drop(world);
    let devices = Device::all().unwrap_or_default();
    println!("another: {:?}", World::new(&devices[..devices.len().min(1)]).map(|world| world.size()));
    if gpucomm::backend() == Backend::Emulator {
        everything();
    }
    println!("all is well at the end");
}

#[test]
#[ignore = "the body of a child process"]
fn ends() {
    for crate_first in [true, false] {
        for keeps in [true, false] {
            let (tell, told) = channel();
            let ending = std::thread::spawn(move || {
                if crate_first {
                    everything();
                }
                LAST.with_borrow_mut(|last| last.0 = Some(Box::new(|| ())));
                let kept = keeps.then(|| {
                    let devices = Device::all().unwrap();
                    let world = World::new(&devices[..devices.len().min(2)]).unwrap();
                    let waits = world.rank(0).unwrap().with_timeout(slower(0.2)).submit(requests::barrier());
                    (world, waits)
                });
                let last = move || {
                    drop(kept);
                    everything();
                    tell.send(()).unwrap();
                };
                LAST.with_borrow_mut(|all| all.0 = Some(Box::new(last)));
            });
            told.recv_timeout(slower(60.0)).expect("no panic");
            ending.join().unwrap();
        }
    }
    let devices = Device::all().unwrap();
    let world = World::new(&devices[..devices.len().min(2)]).unwrap();
    world.barrier().wait().unwrap();
    *KEPT.lock().unwrap() = Some(world);
    // SAFETY: a function of the program, which does not unwind: a panic in it ends the process.
    assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
    std::process::exit(0);
}

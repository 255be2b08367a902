//! Code of users that panics: every request is answered all the same, and the threads go on.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use gpucomm::Result;
use gpucomm::world::{At, Barrier, Completion, InFlight, Members, Reason, Request, WorldOptions};

use super::support::{eventually, slower, world};

/// Where a request panics.
#[derive(Clone, Copy, PartialEq)]
enum Where {
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
    let answer = rank.submit(Bad(Where::Back, None)).wait_for(slower(20.0)).expect("an answer");
    let failed = answer.err().expect("it has nothing");
    assert!(failed.reason == Reason::Failed && failed.buffers.is_none());
    assert!(failed.error.to_string().contains("panicked"), "{failed}");
    rank.submit(Barrier).wait_for(slower(20.0)).expect("an answer").unwrap();
    // In the thread of the world, and of who cancels.
    let (let_go, held) = super::support::hold(&rank);
    let late = rank.clone().within(Duration::from_millis(20)).submit(Bad(Where::Back, None));
    let cancelled = rank.submit(Bad(Where::Back, None));
    assert!(cancelled.cancel());
    for (answer, reason) in [(late, Reason::Late), (cancelled, Reason::Cancelled)] {
        let failed = answer.wait_for(slower(20.0)).expect("an answer").err().expect("it has nothing");
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
    rank.submit(Barrier).wait_for(slower(20.0)).expect("an answer").unwrap();
    eventually("all are answered", || world.metrics().pending == 0);
}

#[test]
fn a_completion() {
    let world = world(1, WorldOptions::default());
    let rank = world.rank(0).unwrap().completion(Arc::new(Panics));
    for _ in 0..3 {
        rank.submit(Barrier).wait_for(slower(20.0)).expect("an answer").unwrap();
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
    let world = world(1, WorldOptions { queue: 1, ..WorldOptions::default() });
    let rank = world.rank(0).unwrap();
    let waker = Waker::from(Arc::new(Loud));
    let mut context = Context::from_waker(&waker);
    let mut watch = world.watch();
    assert!(matches!(std::pin::pin!(watch.changed()).poll(&mut context), Poll::Pending));
    // Who waits for room is woken by the thread of the rank.
    let (let_go, held) = super::support::hold(&rank);
    let waits = rank.submit(Barrier);
    let mut room = std::pin::pin!(rank.room());
    assert!(matches!(room.as_mut().poll(&mut context), Poll::Pending));
    drop(let_go);
    held.wait().unwrap();
    waits.wait_for(slower(20.0)).expect("an answer").unwrap();
    world.fail("a test");
    world.rebuild(Members::Same).unwrap();
    world.rank(0).unwrap().submit(Barrier).wait_for(slower(20.0)).expect("an answer").unwrap();
}

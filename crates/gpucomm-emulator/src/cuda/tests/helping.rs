//! Light work, which is left to whoever asks for its end.

use super::*;
use crate::cuda::core::stream::enqueue;
use crate::cuda::core::work::{Run, Running};
use crate::lock::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

/// What notes who has done it, in which order.
type Notes = Arc<Mutex<Vec<(usize, ThreadId)>>>;

/// Work that may not be done before it is `ready`.
struct Light {
    number: usize,
    ready: Arc<AtomicBool>,
    notes: Notes,
    is_light: bool,
}

impl Run for Light {
    fn run(self: Box<Self>, _: &Running) {
        while !self.ready.load(Ordering::Acquire) {
            thread::yield_now();
        }
        self.notes.lock().push((self.number, thread::current().id()));
    }

    fn is_light(&self) -> bool {
        self.is_light
    }

    fn attempt(self: Box<Self>, running: &Running) -> Option<Box<dyn Run>> {
        assert!(self.is_light, "nobody attempts what takes long");
        if !self.ready.load(Ordering::Acquire) {
            return Some(self);
        }
        self.run(running);
        None
    }
}

struct Rig {
    stream: TestStream,
    notes: Notes,
    number: usize,
}

impl Rig {
    fn new() -> Self {
        Self { stream: TestStream::new(0), notes: Notes::default(), number: 0 }
    }

    fn add(&mut self, is_light: bool, ready: &Arc<AtomicBool>) {
        let (number, ready, notes) = (self.number, ready.clone(), self.notes.clone());
        self.number += 1;
        enqueue(self.stream.0, &[], "a test", Box::new(Light { number, ready, notes, is_light })).unwrap();
    }

    fn ask(&self) -> bool {
        c!(cudaStreamQuery(self.stream.0)) == SUCCESS
    }

    fn finish(&self) {
        while !self.ask() {
            thread::yield_now();
        }
    }

    /// So much that is light, one after the other.
    fn warm_up(&mut self) {
        let ready = Arc::new(AtomicBool::new(true));
        for _ in 0..50 {
            self.add(true, &ready);
            self.finish();
        }
    }

    /// Who has done what, where all was done once and in order.
    fn done(&self) -> Vec<ThreadId> {
        let notes = self.notes.lock();
        assert!(notes.iter().map(|(number, _)| *number).eq(0..self.number), "{notes:?}");
        notes.iter().map(|(_, thread)| *thread).collect()
    }
}

#[test]
fn who_asks_does_what_is_light() {
    alone!();
    let mut rig = Rig::new();
    for _ in 0..20 {
        rig.warm_up();
    }
    let mine = thread::current().id();
    let helped = rig.done().iter().filter(|thread| **thread == mine).count();
    assert!(helped > 0, "none of {}", rig.number);
}

#[test]
fn what_nobody_asks_for_is_done() {
    alone!();
    let mut rig = Rig::new();
    rig.warm_up();
    let ready = Arc::new(AtomicBool::new(true));
    rig.add(true, &ready);
    let begin = Instant::now();
    while rig.notes.lock().len() < rig.number {
        assert!(begin.elapsed() < Duration::from_secs(10), "nobody has done it");
        thread::yield_now();
    }
    assert_ne!(*rig.done().last().unwrap(), thread::current().id());
}

#[test]
fn who_asks_never_waits_and_what_comes_later_stays_behind() {
    alone!();
    let mut rig = Rig::new();
    rig.warm_up();
    let (ready, later) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
    rig.add(true, &ready);
    for _ in 0..100 {
        assert!(!rig.ask());
    }
    rig.add(true, &later);
    rig.add(false, &later);
    assert!(!rig.ask());
    thread::sleep(Duration::from_millis(5));
    assert!(!rig.ask());
    ready.store(true, Ordering::Release);
    rig.finish();
    rig.done();
}

#[test]
fn several_who_ask_keep_the_order() {
    alone!();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut rig = Rig::new();
    let ready = Arc::new(AtomicBool::new(true));
    let (stream, over) = (rig.stream.0.addr(), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    let _ = c!(cudaStreamQuery(std::ptr::without_provenance_mut(stream)));
                }
            });
        }
        for _ in 0..3000 {
            rig.add(rng.u32(..20) > 0, &ready);
            if rng.bool() {
                rig.finish();
            }
        }
        rig.finish();
        over.store(true, Ordering::Release);
    });
    rig.done();
}

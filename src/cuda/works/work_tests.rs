//! Waits for work that is not done say what it waits for, where somebody knows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{Fate, Work, Worker};
use crate::cuda::devices::device::Device;
use crate::cuda::memory::buffers::buffer::DeviceBuffer;
use crate::cuda::memory::host::pinned::PinnedBuffer;
use crate::cuda::order::stream::Stream;
use crate::cuda::works::carry;
use crate::cuda::works::carry::Form;
use crate::error::{Error, Result};

#[derive(Debug, Default)]
struct Knowing {
    gone: AtomicBool,
}

impl Worker for Knowing {
    fn health(&self) -> Result<()> {
        Ok(())
    }

    fn pending(&self, done: u64, last: u64) -> Option<String> {
        Some(format!("operation {last} waits for rank 3, after {done}"))
    }

    fn look_around(&self, _done: u64, _last: u64) {}

    fn has_left(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

/// Keeps a stream busy until it is dropped.
struct Busy {
    _sender: Sender<()>,
}

impl Busy {
    fn keep(stream: &Stream) -> Self {
        let (sender, receiver) = channel::<()>();
        stream
            .launch_host(move || {
                let _ = receiver.recv();
            })
            .unwrap();
        Self { _sender: sender }
    }
}

#[track_caller]
fn assert_tells<V: std::fmt::Debug>(result: Result<V>) {
    match result {
        Err(Error::Timeout { detail, .. }) => {
            assert!(detail.ends_with("; operation 8 waits for rank 3, after 7"), "{detail}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn timeouts_say_what_is_waited_for() {
    const SHORT: Duration = Duration::from_millis(20);
    let (worker, fate) = (Arc::<Knowing>::default(), Arc::<Fate>::default());
    let stream = Stream::new(Device::new(0).unwrap()).unwrap();
    let x = DeviceBuffer::from_slice(&stream, &[1, 2]).unwrap();
    let (mut pinned, other) = (PinnedBuffer::zeroed(2).unwrap(), Stream::new(stream.device()).unwrap());
    stream.synchronize().unwrap();

    let known = Arc::downgrade(&worker);
    let known: Weak<dyn Worker> = known;
    let work = stream.history().adopt(&fate, 8, || Work::new(known, Arc::clone(&fate), 7));
    let busy = Busy::keep(&stream);
    work.enqueue(8);
    let written = x.as_slice().region().alloc.lineage();
    carry::operation((&work, 8), None, Some(written), stream.history(), || Form::Whole);
    x.copy_to_pinned(&stream, &mut pinned).unwrap();
    let event = stream.record().unwrap();
    other.wait_event(&event).unwrap();

    assert_tells(stream.synchronize_timeout(SHORT));
    assert_tells(event.synchronize_timeout(SHORT));
    assert_tells(other.synchronize_timeout(SHORT));
    assert_tells(x.as_slice().copy_to_slice_timeout(&other, &mut [0, 0], SHORT));
    drop(busy);
    assert_eq!(pinned.as_slice().unwrap(), [1, 2]);
    // What was seen to be done waits for nothing.
    let _busy = Busy::keep(&stream);
    match stream.synchronize_timeout(SHORT) {
        Err(Error::Timeout { detail, .. }) => assert!(!detail.contains("operation"), "{detail}"),
        other => panic!("{other:?}"),
    }
}

/// What an operation of another rank may still write is waited for, before anybody is told that he may write there again.
#[test]
fn a_failure_is_told_when_nobody_writes_any_more() {
    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(20);
    let (worker, fate) = (Arc::<Knowing>::default(), Arc::<Fate>::default());
    let [stream, other] = [(); 2].map(|()| Stream::new(Device::new(0).unwrap()).unwrap());
    let mut x = DeviceBuffer::from_slice(&stream, &[1, 2]).unwrap();
    let mut pinned = PinnedBuffer::zeroed(2).unwrap();
    stream.synchronize().unwrap();
    let known = Arc::downgrade(&worker);
    let known: Weak<dyn Worker> = known;
    let work = stream.history().adopt(&fate, 8, || Work::new(known, Arc::clone(&fate), 7));
    work.enqueue(8);
    let written = x.as_slice().region().alloc.lineage();
    carry::operation((&work, 8), None, Some(written), stream.history(), || Form::Whole);
    x.copy_to_pinned(&stream, &mut pinned).unwrap();
    let event = stream.record().unwrap();
    fate.fail(Error::Aborted { operation: "test", reason: "it was asked for".into() });

    let told = |what: &dyn Fn() -> Result<()>, is: bool| {
        // A stream that has not come so far yet is waited for first.
        let start = Instant::now();
        let is_late = |told: &Result<()>| matches!(told, Err(Error::Timeout { .. })) && start.elapsed() < LONG;
        let told = std::iter::repeat_with(what).find(|told| !is_late(told));
        assert!(matches!(told, Some(Err(Error::Aborted { .. }))), "{told:?}");
        assert_eq!(worker.gone.load(Ordering::Relaxed), is);
    };
    let waits: [&dyn Fn(Duration) -> Result<()>; 3] =
        [&|timeout| stream.synchronize_timeout(timeout), &|timeout| event.synchronize_timeout(timeout), &|timeout| {
            x.as_slice().copy_to_slice_timeout(&other, &mut [0, 0], timeout)
        }];
    for wait in waits {
        // A wait takes no longer than it may.
        told(&|| wait(SHORT), false);
        assert!(!stream.query().unwrap() && !event.query().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(SHORT);
                worker.gone.store(true, Ordering::Relaxed);
            });
            told(&|| wait(LONG), true);
            told(&|| stream.query().map(|_| ()), true);
            told(&|| event.query().map(|_| ()), true);
        });
        worker.gone.store(false, Ordering::Relaxed);
    }
    // What is overwritten too early may be overwritten once more.
    x.fill(&other, 3).unwrap();
    assert!(x.as_slice().copy_to_slice_timeout(&other, &mut [0, 0], SHORT).is_err());
    x.copy_from_slice(&other, &[3, 3]).unwrap();
    assert!(x.as_slice().copy_to_slice_timeout(&other, &mut [0, 0], SHORT).is_err());
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(SHORT);
            worker.gone.store(true, Ordering::Relaxed);
        });
        pinned.accept();
    });
    assert!(start.elapsed() >= SHORT);
    assert_eq!(pinned.as_slice().unwrap(), [1, 2]);
    x.fill(&other, 4).unwrap();
    assert_eq!(x.to_vec(&other).unwrap(), [4, 4]);
}

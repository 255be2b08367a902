//! Waits for work that is not done say what it waits for, where somebody knows.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::super::carry::{self, Form};
use super::super::{Device, DeviceBuffer, PinnedBuffer, Stream};
use super::{Fate, Origins, Work, Worker};
use crate::error::{Error, Result};

#[derive(Debug)]
struct Knowing;

impl Worker for Knowing {
    fn health(&self) -> Result<()> {
        Ok(())
    }

    fn pending(&self, done: u64, last: u64) -> Option<String> {
        Some(format!("operation {last} waits for rank 3, after {done}"))
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
    let (worker, fate) = (Arc::new(Knowing), Arc::<Fate>::default());
    let stream = Stream::new(Device::new(0).unwrap()).unwrap();
    let x = DeviceBuffer::from_slice(&stream, &[1, 2]).unwrap();
    let (mut pinned, other) = (PinnedBuffer::new(2).unwrap(), Stream::new(stream.device()).unwrap());
    stream.synchronize().unwrap();

    let known = Arc::downgrade(&worker);
    let known: Weak<dyn Worker> = known;
    let work = stream.history().adopt(&fate, 8, || Work::new(known, Arc::clone(&fate), 7));
    let busy = Busy::keep(&stream);
    work.enqueue(8);
    let written = x.as_slice().region().alloc.lineage();
    carry::operation((&work, 8), &Origins::new(), Some(written), stream.history(), || Form::Whole);
    x.copy_to_pinned(&stream, &mut pinned).unwrap();
    let event = stream.record().unwrap();
    other.wait_event(&event).unwrap();

    assert_tells(stream.wait(SHORT));
    assert_tells(event.wait(SHORT));
    assert_tells(other.wait(SHORT));
    assert_tells(x.as_slice().copy_to_slice_within(&other, &mut [0, 0], SHORT));
    drop(busy);
    assert_eq!(pinned.as_slice().unwrap(), [1, 2]);
    // What was seen to be done waits for nothing.
    let _busy = Busy::keep(&stream);
    match stream.wait(SHORT) {
        Err(Error::Timeout { detail, .. }) => assert!(!detail.contains("operation"), "{detail}"),
        other => panic!("{other:?}"),
    }
}

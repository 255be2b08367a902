//! The work of a stream as a future.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use gpucomm::{DeviceBuffer, Error, Event, Stream};

use crate::block_on::block_on;
use crate::{Gate, LONG, device, stream, two_devices};

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn comes_when_the_work_is_done() {
    let stream = stream();
    block_on(stream.done()).unwrap();
    let buffer = DeviceBuffer::from_slice(&stream, &[5u32; 1000]).unwrap();
    let gate = Gate::close(&stream);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut done = pin!(stream.done());
    assert!(done.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(woken.0.load(Ordering::SeqCst), 0, "woken for nothing");
    // What comes later is not waited for.
    gate.open();
    let later = Gate::close(&stream);
    let start = Instant::now();
    while woken.0.load(Ordering::SeqCst) == 0 {
        assert!(start.elapsed() < LONG, "not woken");
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..2 {
        let Poll::Ready(result) = done.as_mut().poll(&mut Context::from_waker(&waker)) else { panic!("not ready") };
        result.unwrap();
    }
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    later.open();
    block_on(stream.done_timeout(LONG)).unwrap();
    assert_eq!(buffer.to_vec(&stream).unwrap(), [5; 1000]);
}

/// Callbacks do not fire behind work that hangs; the future ends all the same.
#[test]
fn ends_at_its_deadline() {
    let stream = stream();
    let gate = Gate::close(&stream);
    let start = Instant::now();
    let error = block_on(stream.done_timeout(Duration::from_millis(150))).unwrap_err();
    let Error::Timeout { operation: "Stream::done_timeout", timeout, .. } = error else { panic!("{error:?}") };
    assert_eq!(timeout, Duration::from_millis(150));
    assert!((Duration::from_millis(150)..Duration::from_secs(20)).contains(&start.elapsed()));
    gate.open();
    block_on(stream.done()).unwrap();
}

#[test]
fn tells_of_a_panic() {
    let stream = stream();
    stream.launch_host(|| panic!("in a host function, on purpose")).unwrap();
    let error = block_on(stream.done()).unwrap_err();
    assert!(error.to_string().contains("on purpose"), "{error}");
    block_on(stream.done()).unwrap();
}

/// The future of an event outlives it, and means what it was recorded for last.
#[test]
fn of_events() {
    let (stream, event) = (stream(), Event::new(device()).unwrap());
    block_on(event.done()).unwrap();
    let gate = Gate::close(&stream);
    event.record(&stream).unwrap();
    let late = block_on(event.done_timeout(Duration::from_millis(100))).unwrap_err();
    assert!(matches!(late, Error::Timeout { operation: "Event::done_timeout", .. }), "{late:?}");
    let done = event.done();
    drop(event);
    let waits = std::thread::spawn(|| block_on(done));
    std::thread::sleep(Duration::from_millis(5));
    assert!(!waits.is_finished());
    gate.open();
    waits.join().unwrap().unwrap();
    let (other, gate) = (stream.record().unwrap(), Gate::close(&stream));
    block_on(other.done()).unwrap();
    gate.open();
    stream.synchronize().unwrap();
}

/// Many at once, of several devices, some of them dropped, on any thread; the streams may be gone.
#[test]
fn many_at_once() {
    let streams: Vec<_> = match two_devices() {
        Some((a, b)) => [a, b, a, b].into_iter().map(|device| Stream::new(device).unwrap()).collect(),
        None => (0..4).map(|_| stream()).collect(),
    };
    let runs = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for stream in &streams {
            for round in 0..20 {
                let count = Arc::clone(&runs);
                let host = move || {
                    std::thread::sleep(Duration::from_micros(200));
                    count.fetch_add(1, Ordering::SeqCst);
                };
                stream.launch_host(host).unwrap();
                let done = stream.done();
                if round % 4 == 3 {
                    let woken = Waker::from(Arc::new(Woken::default()));
                    let mut done = pin!(done);
                    let _ = done.as_mut().poll(&mut Context::from_waker(&woken));
                } else {
                    scope.spawn(|| block_on(done).unwrap());
                }
            }
        }
    });
    streams.iter().for_each(|stream| block_on(stream.done()).unwrap());
    assert_eq!(runs.load(Ordering::SeqCst), 80);
    let (stream, gate) = (streams[0].clone(), Gate::close(&streams[0]));
    let done = stream.done();
    drop((stream, streams));
    let waits = std::thread::spawn(|| block_on(done));
    gate.open();
    waits.join().unwrap().unwrap();
}

/// A waker that panics is the affair of its executor: the next future is told.
#[test]
fn wakers_may_panic() {
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("a waker, on purpose");
        }
    }
    let stream = stream();
    let gate = Gate::close(&stream);
    let mut done = pin!(stream.done());
    assert!(done.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(Bad)))).is_pending());
    gate.open();
    stream.synchronize().unwrap();
    let gate = Gate::close(&stream);
    let other = std::thread::spawn({
        let done = stream.done();
        || block_on(done)
    });
    std::thread::sleep(Duration::from_millis(5));
    gate.open();
    other.join().unwrap().unwrap();
}

/// CUDA must not be called there.
#[test]
fn not_within_a_host_function() {
    let stream = stream();
    let (tell, told) = channel();
    let other = Stream::new(device()).unwrap();
    stream.launch_host(move || tell.send(block_on(other.done())).unwrap()).unwrap();
    let error = told.recv_timeout(LONG).unwrap().unwrap_err();
    assert!(matches!(error, Error::InvalidUsage { operation: "Stream::done", .. }), "{error:?}");
    stream.synchronize().unwrap();
}

//! The null stream, the default stream of a thread, and streams that others keep alive.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use gpucomm::cuda::{StreamOptions, ThreadStream};
use gpucomm::{Device, DeviceBuffer, Error, PinnedBuffer, Stream, sys};

use crate::child::child;
use crate::{Gate, LONG, device, random, stream, two_devices};

fn current() -> i32 {
    let mut ordinal = -1;
    // SAFETY: writes an integer to the place given.
    assert_eq!(unsafe { sys::cudaGetDevice(&raw mut ordinal) }, sys::cudaError::cudaSuccess);
    ordinal
}

/// A gate on a stream that only its handle is known of; the device is current.
fn raw_gate(raw: sys::cudaStream_t) -> Sender<()> {
    unsafe extern "C" fn wait(opened: *mut c_void) {
        // SAFETY: what `raw_gate` has given up for this call.
        let opened = unsafe { Box::from_raw(opened.cast::<Receiver<()>>()) };
        let _ = opened.recv_timeout(LONG);
    }
    let (open, opened) = channel::<()>();
    let opened = Box::into_raw(Box::new(opened));
    // SAFETY: the stream is alive, and `wait` is called once.
    let code = unsafe { sys::cudaLaunchHostFunc(raw, Some(wait), opened.cast()) };
    assert_eq!(code, sys::cudaError::cudaSuccess);
    open
}

/// Another library's fill.
fn raw_fill(x: &DeviceBuffer<u8>, byte: u8, raw: sys::cudaStream_t) {
    // SAFETY: the buffer has that many bytes, and the tests see to the order.
    let code = unsafe { sys::cudaMemsetAsync(x.as_raw(), i32::from(byte), x.len(), raw) };
    assert_eq!(code, sys::cudaError::cudaSuccess);
}

#[test]
fn the_null_stream_is_one() {
    let null = Stream::null(device());
    // SAFETY: the null stream.
    let others = unsafe {
        [Stream::from_raw(device(), ptr::null_mut()), Stream::from_raw(device(), ptr::without_provenance_mut(1))]
    };
    assert!(others.iter().all(|other| *other == null) && null != stream());
    assert_eq!((null.as_raw().addr(), null.flags().unwrap(), null.device()), (1, 0, device()));
    null.priority().unwrap();
    if let Some((_, other)) = two_devices() {
        assert_ne!(Stream::null(other), null);
        assert_eq!(Stream::null(other).flags().unwrap(), 0);
    }
}

#[test]
fn the_null_stream_takes_turns_with_others() {
    let null = Stream::null(device());
    let _current = device().set_current().unwrap();
    let blocking = Stream::new_with(device(), &StreamOptions::new().with_non_blocking(false).with_priority(0)).unwrap();
    let x = DeviceBuffer::<u8>::zeroed(&null, 100).unwrap();
    let gate = Gate::close(&null);
    raw_fill(&x, 5, ptr::null_mut());
    let mut y = DeviceBuffer::<u8>::zeroed(&blocking, 100).unwrap();
    assert!(!blocking.query().unwrap());
    gate.open();
    y.copy_from(&blocking, &x).unwrap();
    assert_eq!(y.to_vec(&null).unwrap(), [5; 100]);
    let gate = Gate::close(&blocking);
    y.fill(&null, 6).unwrap();
    assert!(!null.query().unwrap());
    assert!(matches!(null.synchronize_timeout(Duration::from_millis(20)), Err(Error::Timeout { .. })));
    gate.open();
    null.synchronize().unwrap();
    let event = null.record().unwrap();
    event.synchronize().unwrap();
    stream().wait_event(&event).unwrap();
    assert_eq!(y.to_vec(&blocking).unwrap(), [6; 100]);
}

#[test]
fn what_others_need_of_it_leaves_the_device_as_it_was() {
    let Some((a, b)) = two_devices() else { return };
    let _current = a.set_current().unwrap();
    let null = Stream::null(b);
    let mut x = DeviceBuffer::<u32>::zeroed(&null, 10).unwrap();
    x.fill(&null, 3).unwrap();
    let other = Stream::new(a).unwrap();
    let mut y = DeviceBuffer::<u32>::zeroed(&other, 10).unwrap();
    let _current = a.set_current().unwrap();
    y.copy_from(&other, &x).unwrap();
    assert_eq!(current(), a.ordinal());
    assert_eq!(y.to_vec(&other).unwrap(), [3; 10]);
}

/// Null streams of two devices and streams of our own, with buffers that are on any.
#[test]
fn random_programs_of_null_streams() {
    let Some((a, b)) = two_devices() else { return };
    let mut random = random("random_programs_of_null_streams");
    let streams: Vec<Stream> =
        [a, b].into_iter().flat_map(|device| [Stream::null(device), Stream::new(device).unwrap()]).collect();
    let mut model = [[0u32; 500]; 4];
    let mut buffers: Vec<_> = streams.iter().map(|stream| DeviceBuffer::<u32>::zeroed(stream, 500).unwrap()).collect();
    for _ in 0..400 {
        let (from, to) = (random.usize(..4), random.usize(..4));
        let stream = random.choice(&streams).unwrap();
        if random.bool() {
            let _current = random.choice(&[a, b]).unwrap().set_current().unwrap();
        }
        if stream.device() != buffers[to].device() {
            continue;
        }
        if from == to || random.bool() {
            let value = random.u32(..);
            buffers[to].fill(stream, value).unwrap();
            model[to] = [value; 500];
        } else {
            let [x, y] = buffers.get_disjoint_mut([from, to]).unwrap();
            y.copy_from(stream, &*x).unwrap();
            model[to] = model[from];
        }
        if random.u32(..50) == 0 {
            let stream = &streams[to];
            buffers[to] = DeviceBuffer::zeroed(stream, 500).unwrap();
            model[to] = [0; 500];
        }
    }
    for ((buffer, values), stream) in buffers.iter().zip(&model).zip(&streams) {
        assert!(buffer.to_vec(stream).unwrap() == *values);
    }
}

/// Captures `raw`, which is or keeps the order of a default stream, in a process of its own: other tests use those. Runs `body` meanwhile.
fn captured(
    name: &str,
    stream: fn() -> (sys::cudaStream_t, Box<dyn std::any::Any>),
    body: fn() -> Vec<Result<(), Error>>,
) {
    let ended = child(name, &[], || {
        let _current = device().set_current().unwrap();
        let (raw, _kept) = stream();
        let (mode, mut graph) = (sys::cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal, ptr::null_mut());
        // SAFETY: the stream is alive, and the graph is destroyed once.
        let refused = unsafe {
            assert_eq!(sys::cudaStreamBeginCapture(raw, mode), sys::cudaError::cudaSuccess);
            let refused = body();
            assert_eq!(sys::cudaStreamEndCapture(raw, &raw mut graph), sys::cudaError::cudaSuccess);
            assert_eq!(sys::cudaGraphDestroy(graph), sys::cudaError::cudaSuccess);
            refused
        };
        for refused in refused {
            assert!(matches!(refused, Err(Error::InvalidUsage { .. })), "{refused:?}");
        }
        Stream::null(device()).launch((), |_, ()| ()).unwrap();
        ThreadStream::new(device()).unwrap().enter(|stream| stream.synchronize()).unwrap().unwrap();
    });
    ended.assert_success();
}

#[test]
fn the_null_stream_is_refused_where_one_of_its_order_is_captured() {
    let stream = || {
        let blocking =
            Stream::new_with(device(), &StreamOptions::new().with_non_blocking(false).with_priority(0)).unwrap();
        (blocking.as_raw(), Box::new(blocking) as Box<dyn std::any::Any>)
    };
    captured("default_streams::the_null_stream_is_refused_where_one_of_its_order_is_captured", stream, || {
        let null = Stream::null(device());
        let zeroed = DeviceBuffer::<u32>::zeroed(&null, 10).map(drop);
        vec![zeroed, null.query().map(drop), null.synchronize(), null.launch((), |_, ()| panic!("ran"))]
    });
}

#[test]
fn a_default_stream_that_is_captured_is_refused() {
    let stream = || (ptr::without_provenance_mut(2), Box::new(()) as Box<dyn std::any::Any>);
    captured("default_streams::a_default_stream_that_is_captured_is_refused", stream, || {
        vec![ThreadStream::new(device()).unwrap().enter(|_| panic!("ran"))]
    });
}

/// What another library has: a stream that goes with it.
struct Theirs {
    raw: sys::cudaStream_t,
    tell: Sender<()>,
}

// SAFETY: CUDA takes streams from any thread.
unsafe impl Send for Theirs {}

impl Theirs {
    fn new(device: Device) -> (Self, Receiver<()>) {
        let _current = device.set_current().unwrap();
        let (mut raw, (tell, end)) = (ptr::null_mut(), channel());
        // SAFETY: writes a handle to the place given.
        let code = unsafe { sys::cudaStreamCreateWithPriority(&raw mut raw, sys::cudaStreamNonBlocking, 0) };
        assert_eq!(code, sys::cudaError::cudaSuccess);
        (Self { raw, tell }, end)
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        // SAFETY: made above, and destroyed once.
        assert_eq!(unsafe { sys::cudaStreamDestroy(self.raw) }, sys::cudaError::cudaSuccess);
        let _ = self.tell.send(());
        panic!("a panic of an owner ends there");
    }
}

#[test]
fn an_owner_keeps_a_stream_as_long_as_it_is_needed() {
    let (theirs, end) = Theirs::new(device());
    let raw = theirs.raw;
    // SAFETY: the stream lives until its owner is dropped.
    let stream = unsafe { Stream::from_raw_with(device(), raw, theirs) }.unwrap();
    // SAFETY: as above.
    let same = unsafe { Stream::from_raw(device(), raw) };
    assert_eq!((stream.as_raw(), &stream), (raw, &same));
    let mut x = DeviceBuffer::<u32>::zeroed(&stream, 10).unwrap();
    let gate = Gate::close(&stream);
    x.fill(&stream, 4).unwrap();
    drop((stream, same));
    let other = crate::stream();
    let mut y = DeviceBuffer::<u32>::zeroed(&other, 10).unwrap();
    y.copy_from(&other, &x).unwrap();
    assert!(end.recv_timeout(Duration::from_millis(50)).is_err(), "the memory needs it");
    gate.open();
    assert_eq!(y.to_vec(&other).unwrap(), [4; 10]);
    drop(x);
    end.recv_timeout(LONG).unwrap();
}

#[test]
fn a_thread_keeps_the_order_of_its_default_stream() {
    let _current = device().set_current().unwrap();
    let stream = ThreadStream::new(device()).unwrap();
    assert_eq!((stream.as_raw().addr(), stream.device()), (2, device()));
    let mut x = stream.enter(|stream| DeviceBuffer::<u8>::zeroed(stream, 1000)).unwrap().unwrap();
    let other = crate::stream();
    // After what others have enqueued there,
    let gate = raw_gate(stream.as_raw());
    raw_fill(&x, 1, stream.as_raw());
    let mut y = stream
        .enter(|stream| {
            let mut y = DeviceBuffer::<u8>::zeroed(stream, 1000).unwrap();
            y.copy_from(stream, &x).unwrap();
            assert!(!stream.query().unwrap());
            y
        })
        .unwrap();
    // which holds up no other thread,
    std::thread::spawn(|| {
        let stream = ThreadStream::new(device()).unwrap();
        let x = stream.enter(|stream| DeviceBuffer::from_slice(stream, &[7u8; 10])).unwrap().unwrap();
        assert_eq!(stream.enter(|stream| x.to_vec(stream)).unwrap().unwrap(), [7; 10]);
    })
    .join()
    .unwrap();
    drop(gate);
    assert_eq!(y.to_vec(&other).unwrap(), [1; 1000]);
    // and before what they enqueue later, also where something panics.
    let thrown = catch_unwind(AssertUnwindSafe(|| {
        stream.enter(|stream| {
            let gate = Gate::close(stream);
            y.fill(stream, 2).unwrap();
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                gate.open();
            });
            panic!("within");
        })
    }));
    assert!(thrown.is_err());
    raw_fill(&y, 3, stream.as_raw());
    stream.enter(|stream| x.copy_from(stream, &y)).unwrap().unwrap();
    assert_eq!(x.to_vec(&other).unwrap(), [3; 1000]);
}

/// What is on its way is bounded there too.
#[test]
fn entering_is_bounded() {
    let (count, (tell, told)) = (Arc::new(AtomicUsize::new(0)), channel());
    let thread = std::thread::spawn({
        let count = Arc::clone(&count);
        move || {
            let _current = device().set_current().unwrap();
            let stream = ThreadStream::new(device()).unwrap();
            tell.send(raw_gate(stream.as_raw())).unwrap();
            for _ in 0..1000 {
                stream.enter(|_| ()).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
            }
            stream.enter(|stream| stream.synchronize()).unwrap().unwrap();
        }
    });
    let gate = told.recv_timeout(LONG).unwrap();
    let (start, mut last) = (Instant::now(), usize::MAX);
    // A thread that has not come far is waited for: the machine may be busy.
    while std::mem::replace(&mut last, count.load(Ordering::SeqCst)) != last || last < 4 && start.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!((4..=200).contains(&last), "{last} are on their way");
    drop(gate);
    thread.join().unwrap();
}

/// Memory, graphs, events and streams go to other threads, while the stream of the thread that has ended still has work.
#[test]
fn a_thread_that_has_ended() {
    let stream = stream();
    let mut x = DeviceBuffer::<u32>::zeroed(&stream, 1000).unwrap();
    let mut y = DeviceBuffer::<u32>::zeroed(&stream, 1000).unwrap();
    let mut pinned = PinnedBuffer::<u32>::zeroed(1000).unwrap();
    let source = DeviceBuffer::from_slice(&stream, &[9u32; 1000]).unwrap();
    stream.synchronize().unwrap();
    let work = move |own: &Stream| {
        let gate = Gate::close(own);
        x.fill(own, 7).unwrap();
        let graph = own.capture(|own| y.fill(own, 8)).unwrap();
        graph.launch(own).unwrap();
        source.copy_to_pinned(own, &mut pinned).unwrap();
        (gate, x, y, pinned, graph, own.record().unwrap(), own.clone())
    };
    let thread = std::thread::spawn(|| ThreadStream::new(device()).unwrap().enter(work).unwrap());
    let (gate, mut x, y, pinned, graph, event, kept) = thread.join().unwrap();
    assert!(!event.query().unwrap() && !kept.query().unwrap());
    let opener = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(50));
        gate.open();
    });
    assert_eq!(pinned.as_slice().unwrap(), [9; 1000]);
    opener.join().unwrap();
    assert_eq!(x.to_vec(&stream).unwrap(), [7; 1000]);
    drop(graph);
    assert_eq!(y.to_vec(&stream).unwrap(), [8; 1000]);
    event.synchronize_timeout(LONG).unwrap();
    // The stream lives for as long as somebody has it.
    x.fill(&kept, 3).unwrap();
    assert_eq!(x.to_vec(&kept).unwrap(), [3; 1000]);
    assert_eq!(x.to_vec(&stream).unwrap(), [3; 1000]);
}

//! Streams that somebody captures into a graph: nothing of this crate gets into it, or spoils it.

use std::ptr;

use gpucomm::{DeviceBuffer, Error, Event, PinnedBuffer, Result, Stream, sys};

use crate::child::alone;
use crate::owners::{lives, told};
use crate::{LONG, device, stream};

/// Runs `body` while `stream` is being captured by another library, which nothing may spoil.
fn captured(stream: &Stream, body: impl FnOnce()) {
    let mut graph = ptr::null_mut();
    // SAFETY: the stream is alive, the test uses it from this thread only, and the graph is destroyed once.
    unsafe {
        let mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal;
        assert_eq!(sys::cudaStreamBeginCapture(stream.as_raw(), mode), sys::cudaError::cudaSuccess);
        body();
        let ended = sys::cudaStreamEndCapture(stream.as_raw(), &raw mut graph);
        assert_eq!(ended, sys::cudaError::cudaSuccess, "the capture was spoilt");
        assert_eq!(sys::cudaGraphDestroy(graph), sys::cudaError::cudaSuccess);
    }
}

fn refused<T>(what: &str, result: Result<T>) {
    let Err(error) = result else { panic!("{what}: taken") };
    let Error::InvalidUsage { operation, reason } = &error else { panic!("{what}: {error}") };
    assert!(reason.contains("captured into a graph"), "{what}, {operation}: {error}");
}

#[test]
fn what_would_be_enqueued_is_refused() {
    let (stream, other) = (stream(), stream());
    let mut x = DeviceBuffer::from_slice(&stream, &[1u32; 100]).unwrap();
    let mut y = DeviceBuffer::from_slice(&other, &[2u32; 100]).unwrap();
    let pinned = PinnedBuffer::from_slice(&[3u32; 100]).unwrap();
    let event = Event::new(device()).unwrap();
    let reached = other.record().unwrap();
    stream.synchronize().unwrap();
    other.synchronize().unwrap();
    captured(&stream, || {
        refused("zeroed", DeviceBuffer::<u32>::zeroed(&stream, 10));
        refused("uninit", DeviceBuffer::<u32>::uninit(&stream, 10));
        refused("from_slice", DeviceBuffer::from_slice(&stream, &[1u32; 10]));
        refused("fill", x.fill(&stream, 7));
        refused("copy_from", x.copy_from(&stream, &y));
        refused("copy_from_slice", x.copy_from_slice(&stream, &[4; 100]));
        refused("copy_from_pinned", x.copy_from_pinned(&stream, &pinned));
        refused("to_vec", x.to_vec(&stream));
        refused("record", stream.record());
        refused("Event::record", event.record(&stream));
        refused("wait_event", stream.wait_event(&reached));
        refused("launch_host", stream.launch_host(|| panic!("a host function of a graph")));
        refused("query", stream.query());
        refused("synchronize", stream.synchronize());
        refused("synchronize_timeout", stream.synchronize_timeout(LONG));
        // Others are not concerned.
        y.fill(&other, 8).unwrap();
        assert_eq!(y.to_vec(&other).unwrap(), [8; 100]);
    });
    x.copy_from(&stream, &y).unwrap();
    assert_eq!(x.to_vec(&stream).unwrap(), [8; 100]);
}

/// Memory that the stream has used before its capture: who else wants it would need a mark on the stream.
#[test]
fn what_the_stream_has_used_before() {
    let (stream, other) = (stream(), stream());
    let mut x = DeviceBuffer::from_slice(&stream, &[5u32; 1000]).unwrap();
    let mut y = DeviceBuffer::<u32>::zeroed(&other, 1000).unwrap();
    stream.synchronize().unwrap();
    x.fill(&stream, 6).unwrap();
    captured(&stream, || {
        refused("copy_from", y.copy_from(&other, &x));
        // The stream does not come after what others have done.
        refused("to_vec", y.to_vec(&stream));
        refused("copy_from_slice", y.copy_from_slice(&stream, &[1; 1000]));
        refused("fill", y.fill(&stream, 1));
    });
    y.copy_from(&other, &x).unwrap();
    assert_eq!(y.to_vec(&other).unwrap(), [6; 1000]);
}

/// Memory is freed neither within the graph nor never: a device does not hold what all rounds allocate. `make` gets the stream that is
/// captured while what it returns is dropped, another one, and how much to allocate: a quarter of what is free, so that no other
/// test may have that.
fn is_freed_afterwards(make: impl Fn(&Stream, &Stream, usize) -> DeviceBuffer<u8>) {
    const ROUNDS: usize = 24;
    let (stream, other) = (stream(), stream());
    let settle = || {
        for stream in [&stream, &other] {
            stream.synchronize().unwrap();
        }
    };
    // Whether a pool gives memory of one stream to another it decides by itself, as long as there is more.
    let len = device().memory_info().unwrap().free / 4;
    for _ in 0..ROUNDS {
        let dropped = make(&stream, &other, len);
        captured(&stream, || drop(dropped));
        settle();
        // What was dropped is tried again where work goes on.
        drop(DeviceBuffer::<u8>::zeroed(&other, 1).unwrap());
        settle();
    }
}

#[test]
fn what_is_dropped_is_freed_afterwards() {
    alone("capture::what_is_dropped_is_freed_afterwards", || {
        is_freed_afterwards(|stream, _, len| DeviceBuffer::uninit(stream, len).unwrap());
    });
}

/// The stream of the memory would have to wait for the other one, which would be no wait of the graph.
#[test]
fn what_others_used_last_is_freed_afterwards() {
    alone("capture::what_others_used_last_is_freed_afterwards", || {
        is_freed_afterwards(|stream, other, len| {
            let mut buffer = DeviceBuffer::uninit(stream, len).unwrap();
            buffer.slice_mut(..1000).fill(other, 1).unwrap();
            buffer
        });
    });
}

/// The other stream would have to wait for a mark on the one that is captured, which has none yet.
#[test]
fn what_is_still_used_is_freed_afterwards() {
    alone("capture::what_is_still_used_is_freed_afterwards", || {
        is_freed_afterwards(|stream, other, len| {
            let mut buffer = DeviceBuffer::uninit(other, len).unwrap();
            buffer.slice_mut(..1000).fill(stream, 1).unwrap();
            buffer
        });
    });
}

#[test]
fn an_owner_stays_until_the_capture_is_over() {
    let stream = stream();
    let (mut x, end) = told(&stream, 100);
    x.fill(&stream, 1).unwrap();
    captured(&stream, || {
        // How far the stream is cannot be asked now.
        drop(x);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(lives(&end));
    });
    end.recv_timeout(LONG).unwrap();
}

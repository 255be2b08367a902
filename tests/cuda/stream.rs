//! Streams and events.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gpucomm::cuda::{DeviceAttribute, StreamOptions, driver_version, runtime_version, trim_pinned};
use gpucomm::{Device, DeviceBuffer, Error, Event, PinnedBuffer, Stream, sys};

use crate::{Gate, LONG, device, stream, two_devices};

#[test]
fn options_arrive() {
    let (least, greatest) = device().stream_priority_range().unwrap();
    let plain = stream();
    assert_eq!((plain.flags().unwrap(), plain.priority().unwrap(), plain.device()), (1, least.max(0), device()));
    let options = StreamOptions::new().with_non_blocking(false).with_priority(greatest);
    let other = Stream::new_with(device(), &options).unwrap();
    assert_eq!((other.flags().unwrap(), other.priority().unwrap()), (0, greatest));
}

#[test]
fn a_wait_gives_up_and_can_be_repeated() {
    let stream = stream();
    let gate = Gate::close(&stream);
    assert!(!stream.query().unwrap());
    let start = Instant::now();
    let error = stream.synchronize_timeout(Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, Error::Timeout { operation: "Stream::synchronize_timeout", .. }), "{error}");
    assert!(start.elapsed() >= Duration::from_millis(50) && start.elapsed() < Duration::from_secs(20));
    gate.open();
    stream.synchronize_timeout(LONG).unwrap();
    assert!(stream.query().unwrap());
}

#[test]
fn a_wait_ends_though_others_go_on() {
    let stream = stream();
    // One that is late to record what it waits for waits for the second gate as well, and has another try.
    let ends = [100, 1000, 5000].into_iter().any(|pause| {
        let first = Gate::close(&stream);
        let waiter = std::thread::spawn({
            let stream = stream.clone();
            move || stream.synchronize_timeout(LONG)
        });
        std::thread::sleep(Duration::from_millis(pause));
        let second = Gate::close(&stream);
        first.open();
        let start = Instant::now();
        while !waiter.is_finished() && start.elapsed() < Duration::from_secs(5) {
            std::thread::yield_now();
        }
        let finished = waiter.is_finished();
        second.open();
        waiter.join().unwrap().unwrap();
        finished
    });
    assert!(ends, "the wait was prolonged by work enqueued later");
    stream.synchronize().unwrap();
}

#[test]
fn host_functions_run_in_order() {
    let stream = stream();
    let count = Arc::new(AtomicUsize::new(0));
    for at in 0..50 {
        let count = Arc::clone(&count);
        stream.launch_host(move || assert_eq!(count.fetch_add(1, Ordering::SeqCst), at)).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 50);
}

#[test]
fn a_panic_in_a_host_function_is_reported_once() {
    let stream = stream();
    stream.launch_host(|| panic!("seven")).unwrap();
    stream.launch_host(|| panic!("{}", String::from("eight"))).unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(matches!(error, Error::InvalidUsage { operation: "Stream::launch_host", .. }), "{error}");
    assert!(error.to_string().contains("seven"), "{error}");
    stream.synchronize().unwrap();
    let buffer = DeviceBuffer::from_slice(&stream, &[1u8, 2, 3]).unwrap();
    assert_eq!(buffer.to_vec(&stream).unwrap(), [1, 2, 3]);
}

#[test]
fn host_functions_are_refused_cuda() {
    let stream = stream();
    let inner = stream.clone();
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1u8; 64]).unwrap();
    let other = DeviceBuffer::from_slice(&stream, &[2u8; 64]).unwrap();
    let mut pinned = PinnedBuffer::from_slice(&[3u8; 64]).unwrap();
    let (event, start) = (Event::timing(device()).unwrap(), Event::timing(device()).unwrap());
    buffer.copy_to_pinned(&stream, &mut pinned).unwrap();
    start.record(&stream).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    stream
        .launch_host(move || {
            let device = inner.device();
            let answers: Vec<(&str, Result<(), Error>)> = vec![
                ("Device::count", Device::count().map(drop)),
                ("Device::all", Device::all().map(drop)),
                ("Device::new", Device::new(0).map(drop)),
                ("Device::current", Device::current().map(drop)),
                ("name", device.name().map(drop)),
                ("uuid", device.uuid().map(drop)),
                ("total_memory", device.total_memory().map(drop)),
                ("pci_bus_id", device.pci_bus_id().map(drop)),
                ("attribute", device.attribute(DeviceAttribute::COMPUTE_CAPABILITY_MAJOR).map(drop)),
                ("compute_capability", device.compute_capability().map(drop)),
                ("memory_info", device.memory_info().map(drop)),
                ("can_access_peer", device.can_access_peer(device).map(drop)),
                ("enable_peer_access", device.enable_peer_access(device).map(drop)),
                ("stream_priority_range", device.stream_priority_range().map(drop)),
                ("set_current", device.set_current().map(drop)),
                ("driver_version", driver_version().map(drop)),
                ("runtime_version", runtime_version().map(drop)),
                ("trim_pinned", trim_pinned().map(drop)),
                ("Stream::new", Stream::new(device).map(drop)),
                ("Stream::new_with", Stream::new_with(device, &StreamOptions::default()).map(drop)),
                ("flags", inner.flags().map(drop)),
                ("priority", inner.priority().map(drop)),
                ("Stream::query", inner.query().map(drop)),
                ("Stream::synchronize_timeout", inner.synchronize_timeout(LONG)),
                ("Stream::synchronize", inner.synchronize()),
                ("Stream::record", inner.record().map(drop)),
                ("wait_event", inner.wait_event(&event)),
                ("launch_host", inner.launch_host(|| ())),
                ("Event::new", Event::new(device).map(drop)),
                ("Event::timing", Event::timing(device).map(drop)),
                ("Event::record", event.record(&inner)),
                ("Event::query", event.query().map(drop)),
                ("Event::synchronize_timeout", event.synchronize_timeout(LONG)),
                ("Event::synchronize", event.synchronize()),
                ("elapsed_since", event.elapsed_since(&start).map(drop)),
                ("DeviceBuffer::uninit", DeviceBuffer::<u8>::uninit(&inner, 3).map(drop)),
                ("DeviceBuffer::zeroed", DeviceBuffer::<u8>::zeroed(&inner, 3).map(drop)),
                ("DeviceBuffer::from_slice", DeviceBuffer::from_slice(&inner, &[3]).map(drop)),
                ("fill", buffer.fill(&inner, 5)),
                ("copy_from", buffer.copy_from(&inner, &other)),
                ("copy_from_slice", buffer.copy_from_slice(&inner, &[1; 64])),
                ("to_vec", buffer.to_vec(&inner).map(drop)),
                ("copy_to_slice", buffer.copy_to_slice(&inner, &mut [0; 64])),
                ("copy_to_slice_timeout", buffer.copy_to_slice_timeout(&inner, &mut [0; 64], LONG)),
                ("copy_to_pinned", buffer.copy_to_pinned(&inner, &mut pinned)),
                ("copy_from_pinned", buffer.copy_from_pinned(&inner, &pinned)),
                ("PinnedBuffer::zeroed", PinnedBuffer::<u8>::zeroed(10).map(drop)),
                ("PinnedBuffer::from_slice", PinnedBuffer::from_slice(&[1]).map(drop)),
                ("as_slice", pinned.as_slice().map(drop)),
            ];
            tell.send(answers).unwrap();
            // The buffers and the stream are dropped here: leaked, without a call of CUDA.
        })
        .unwrap();
    stream.synchronize_timeout(LONG).unwrap();
    for (what, answer) in told.recv().unwrap() {
        let Err(Error::InvalidUsage { operation, .. }) = answer else { panic!("{what}: {answer:?}") };
        assert!(operation.ends_with(what), "{what} says that it is {operation}");
    }
}

#[test]
fn events_order_streams() {
    let (a, b) = (stream(), stream());
    let gate = Gate::close(&a);
    let event = a.record().unwrap();
    b.wait_event(&event).unwrap();
    assert!(!event.query().unwrap());
    assert!(matches!(b.synchronize_timeout(Duration::from_millis(30)), Err(Error::Timeout { .. })));
    assert!(matches!(
        event.synchronize_timeout(Duration::from_millis(30)),
        Err(Error::Timeout { operation: "Event::synchronize_timeout", .. })
    ));
    gate.open();
    b.synchronize().unwrap();
    event.synchronize().unwrap();
    assert!(event.query().unwrap());
}

#[test]
fn an_event_that_was_never_recorded_holds_up_nobody() {
    let stream = stream();
    let event = Event::new(device()).unwrap();
    assert!(event.query().unwrap());
    stream.wait_event(&event).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn events_take_the_time() {
    let stream = stream();
    let (start, end) = (Event::timing(device()).unwrap(), Event::timing(device()).unwrap());
    start.record(&stream).unwrap();
    stream.launch_host(|| std::thread::sleep(Duration::from_millis(20))).unwrap();
    end.record(&stream).unwrap();
    end.synchronize().unwrap();
    let time = end.elapsed_since(&start).unwrap();
    assert!(time >= Duration::from_millis(19) && time < Duration::from_secs(20), "{time:?}");
    let plain = Event::new(device()).unwrap();
    assert!(matches!(plain.elapsed_since(&start), Err(Error::InvalidArgument { .. })));
    // Not recorded yet: CUDA refuses, and the thread's next call is fine.
    assert!(Event::timing(device()).unwrap().elapsed_since(&start).is_err());
    stream.synchronize().unwrap();
}

#[test]
fn events_keep_to_their_device() {
    let Some((a, b)) = two_devices() else { return };
    let (on_a, on_b) = (Stream::new(a).unwrap(), Stream::new(b).unwrap());
    let error = Event::new(a).unwrap().record(&on_b).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { operation: "Event::record", .. }), "{error}");
    // Waiting across devices is fine.
    let gate = Gate::close(&on_a);
    on_b.wait_event(&on_a.record().unwrap()).unwrap();
    assert!(!on_b.query().unwrap());
    gate.open();
    on_b.synchronize().unwrap();
}

#[test]
fn a_dropped_stream_does_its_work() {
    let outer = stream();
    let buffer = {
        let inner = stream();
        let gate = Gate::close(&inner);
        let mut buffer = DeviceBuffer::<i32>::zeroed(&inner, 1000).unwrap();
        buffer.fill(&inner, 77).unwrap();
        drop(inner);
        gate.open();
        buffer
    };
    assert_eq!(buffer.to_vec(&outer).unwrap(), [77; 1000]);
}

#[test]
fn a_borrowed_stream_is_not_destroyed() {
    let owner = stream();
    for _ in 0..3 {
        // SAFETY: `owner` outlives everything that is used on the borrowed stream.
        let borrowed = unsafe { Stream::from_raw(owner.device(), owner.as_raw()) };
        let buffer = DeviceBuffer::from_slice(&borrowed, &[5i64; 10]).unwrap();
        assert_eq!(buffer.to_vec(&owner).unwrap(), [5; 10]);
    }
    owner.synchronize().unwrap();
}

#[test]
fn a_stream_is_given_away_with_its_work() {
    let other = stream();
    for _ in 0..3 {
        let given = stream();
        let mut x = DeviceBuffer::<u32>::zeroed(&other, 1001).unwrap();
        let mut dropped = DeviceBuffer::<u32>::zeroed(&given, 77).unwrap();
        other.synchronize().unwrap();
        let gate = Gate::close(&given);
        dropped.fill(&given, 1).unwrap();
        let refused = given.clone().into_raw().unwrap_err();
        assert!(matches!(refused, Error::InvalidUsage { operation: "Stream::into_raw", .. }), "{refused}");
        drop(dropped);
        // What is on its way stays there, the free of that memory too.
        let expected = given.as_raw();
        let raw = given.into_raw().unwrap();
        assert_eq!(raw, expected);
        // SAFETY: the stream and the buffer are alive, and all of the buffer is written.
        unsafe {
            let code = sys::cudaMemsetAsync(x.as_raw(), 0x11, 1001 * size_of::<u32>(), raw);
            assert_eq!(code, sys::cudaError::cudaSuccess);
            assert_eq!(sys::cudaStreamQuery(raw), sys::cudaError::cudaErrorNotReady);
        }
        gate.open();
        // SAFETY: nobody else has it until it is destroyed, below.
        let back = unsafe { Stream::from_raw(device(), raw) };
        back.synchronize_timeout(LONG).unwrap();
        assert_eq!(x.to_vec(&back).unwrap(), [0x1111_1111; 1001]);
        x.fill(&back, 5).unwrap();
        assert_eq!(x.slice(1..4).to_vec(&other).unwrap(), [5; 3]);
        // It is of others now: given away again, it is the same.
        drop(x);
        assert_eq!(back.into_raw().unwrap(), raw);
        // SAFETY: given away, and destroyed once.
        assert_eq!(unsafe { sys::cudaStreamDestroy(raw) }, sys::cudaError::cudaSuccess);
    }
}

#[test]
fn what_something_needs_is_not_given_away() {
    let refused = |stream: Stream, got: &str| {
        let error = stream.into_raw().unwrap_err();
        assert!(matches!(error, Error::InvalidUsage { operation: "Stream::into_raw", .. }), "{error}");
        assert!(error.to_string().contains(got), "{error}");
    };
    let (given, other) = (stream(), stream());
    let mut x = DeviceBuffer::<u8>::zeroed(&other, 3).unwrap();
    x.fill(&given, 9).unwrap();
    refused(given.clone(), "a clone");
    refused(given, "that memory");
    assert_eq!(x.to_vec(&other).unwrap(), [9; 3]);
    refused(Stream::null(device()), "the null stream");
    struct Owner(Stream, Arc<AtomicUsize>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    let ends = Arc::new(AtomicUsize::new(0));
    let owner = Owner(stream(), Arc::clone(&ends));
    let raw = owner.0.as_raw();
    let theirs = stream().into_raw().unwrap();
    assert_ne!(raw, theirs);
    // SAFETY: a stream of this device, which is destroyed below.
    refused(unsafe { Stream::from_raw_with(device(), theirs, owner) }.unwrap(), "its owner");
    let start = Instant::now();
    while ends.load(Ordering::SeqCst) == 0 && start.elapsed() < LONG {
        std::thread::yield_now();
    }
    assert_eq!(ends.load(Ordering::SeqCst), 1, "the owner is dropped");
    // SAFETY: given away, and destroyed once.
    assert_eq!(unsafe { sys::cudaStreamDestroy(theirs) }, sys::cudaError::cudaSuccess);
}

#[test]
fn events_of_others_are_events() {
    let (a, b) = (stream(), stream());
    let theirs = Event::timing(device()).unwrap().into_raw();
    // SAFETY: the event is alive, and no other value is made of it.
    let event = unsafe { Event::from_raw(device(), theirs) };
    assert_eq!((event.as_raw(), event.device()), (theirs, device()));
    let gate = Gate::close(&a);
    event.record(&a).unwrap();
    b.wait_event(&event).unwrap();
    assert!(!event.query().unwrap() && !b.query().unwrap());
    gate.open();
    event.synchronize_timeout(LONG).unwrap();
    let end = Event::timing(device()).unwrap();
    end.record(&a).unwrap();
    end.synchronize().unwrap();
    end.elapsed_since(&event).unwrap();
    drop(event);
    // It is still there.
    // SAFETY: as above; and destroyed once.
    unsafe {
        assert_eq!(sys::cudaEventQuery(theirs), sys::cudaError::cudaSuccess);
        assert_eq!(sys::cudaEventDestroy(theirs), sys::cudaError::cudaSuccess);
    }
    // Of those without a time CUDA says so.
    let plain = Event::new(device()).unwrap().into_raw();
    // SAFETY: as above.
    let event = unsafe { Event::from_raw(device(), plain) };
    event.record(&a).unwrap();
    a.synchronize().unwrap();
    assert!(matches!(end.elapsed_since(&event), Err(Error::Cuda { .. })));
    // SAFETY: from `Event::into_raw`, and destroyed once.
    assert_eq!(unsafe { sys::cudaEventDestroy(event.into_raw()) }, sys::cudaError::cudaSuccess);
}

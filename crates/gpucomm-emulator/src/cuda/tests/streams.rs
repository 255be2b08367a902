//! Streams, events and host functions.

use super::waits::assert_waits;
use super::*;
use crate::cuda::core::line::CHANNELS;
use crate::cuda::core::stream::enqueue;
use crate::cuda::core::work::Running;
use std::sync::atomic::{AtomicU32, Ordering};

/// A host function that adds to the number behind its data.
unsafe extern "C" fn add(data: *mut c_void) {
    // SAFETY: every test passes a number that outlives its stream's work.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
}

fn address(count: &AtomicU32) -> *mut c_void {
    std::ptr::from_ref(count).cast_mut().cast()
}

#[test]
fn work_runs_in_order_and_query_tells_when_it_is_done() {
    alone!();
    let stream = TestStream::new(0);
    ok!(cudaStreamQuery(stream.0));
    let memory = malloc(4);
    let gate = stream.close_gate();
    for value in 0..100u32 {
        upload(memory, &[value], stream.0);
    }
    assert_eq!(c!(cudaStreamQuery(stream.0)), NOT_READY);
    assert_eq!(c!(cudaGetLastError()), NOT_READY);
    drop(gate);
    assert_eq!(download::<u32>(memory, 1, stream.0), [99]);
    ok!(cudaStreamQuery(stream.0));
    ok!(cudaFree(memory));
}

#[test]
fn streams_have_flags_and_priorities() {
    alone!();
    ok!(cudaSetDevice(0));
    let (mut least, mut greatest, mut priority, mut flags) = (9, 9, 9, 9);
    ok!(cudaDeviceGetStreamPriorityRange(&mut least, &mut greatest));
    assert!(greatest < least);
    let mut stream = null_mut();
    ok!(cudaStreamCreateWithPriority(&mut stream, cudaStreamNonBlocking, greatest - 10));
    ok!(cudaStreamGetPriority(stream, &mut priority));
    ok!(cudaStreamGetFlags(stream, &mut flags));
    assert_eq!((priority, flags), (greatest, cudaStreamNonBlocking));
    ok!(cudaStreamDestroy(stream));
    assert_eq!(c!(cudaStreamCreateWithPriority(&mut stream, 4, 0)), INVALID);
}

#[test]
fn destroying_a_stream_lets_its_work_finish_and_ends_the_handle() {
    alone!();
    let _expected = ["is no stream", "is no event"].map(expect);
    let stream = TestStream::new(0);
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = &COUNT;
    let gate = stream.close_gate();
    for _ in 0..10 {
        ok!(cudaLaunchHostFunc(stream.0, Some(add), address(count)));
    }
    let event = event(cudaEventDisableTiming);
    ok!(cudaEventRecord(event, stream.0));
    let handle = stream.0;
    drop(stream);
    assert_eq!(c!(cudaStreamQuery(handle)), BAD_HANDLE);
    assert_eq!(c!(cudaStreamDestroy(handle)), BAD_HANDLE);
    assert_eq!(c!(cudaEventRecord(event, handle)), BAD_HANDLE);
    assert_eq!(c!(cudaEventQuery(event)), NOT_READY);
    drop(gate);
    while c!(cudaEventQuery(event)) == NOT_READY {
        std::thread::yield_now();
    }
    assert_eq!(count.load(Ordering::Relaxed), 10);
    ok!(cudaEventDestroy(event));
    assert_eq!(c!(cudaEventDestroy(event)), BAD_HANDLE);
    assert_eq!(c!(cudaEventQuery(event)), BAD_HANDLE);
    assert_eq!(c!(cudaEventQuery(handle.cast())), BAD_HANDLE, "a stream is no event");
}

#[test]
fn a_wait_is_for_the_record_at_the_time_of_the_call() {
    alone!();
    let (first, second) = (TestStream::new(0), TestStream::new(1));
    let count = AtomicU32::new(0);
    ok!(cudaSetDevice(0));
    let event = event(cudaEventDisableTiming);
    ok!(cudaStreamWaitEvent(second.0, event, 0));
    ok!(cudaEventQuery(event));
    second.wait();
    let gate = first.close_gate();
    ok!(cudaEventRecord(event, first.0));
    ok!(cudaStreamWaitEvent(second.0, event, 0));
    ok!(cudaLaunchHostFunc(second.0, Some(add), address(&count)));
    let other = TestStream::new(0);
    ok!(cudaEventRecord(event, other.0));
    ok!(cudaEventQuery(event));
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(
        c!(cudaStreamQuery(second.0)),
        NOT_READY,
        "recording again does not release who waits for the first record"
    );
    assert_eq!(count.load(Ordering::Relaxed), 0);
    drop(gate);
    second.wait();
    assert_eq!(count.load(Ordering::Relaxed), 1);
    // Also when the event is destroyed meanwhile.
    let gate = first.close_gate();
    ok!(cudaEventRecord(event, first.0));
    ok!(cudaStreamWaitEvent(second.0, event, 0));
    ok!(cudaEventDestroy(event));
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(c!(cudaStreamQuery(second.0)), NOT_READY);
    drop(gate);
    second.wait();
}

#[test]
fn events_measure_time() {
    alone!();
    let stream = TestStream::new(0);
    let (start, end, untimed) = (event(cudaEventDefault), event(cudaEventBlockingSync), event(cudaEventDisableTiming));
    let mut ms = -1.0;
    assert_eq!(c!(cudaEventElapsedTime(&mut ms, start, end)), BAD_HANDLE, "never recorded");
    let gate = stream.close_gate();
    ok!(cudaEventRecord(start, stream.0));
    ok!(cudaEventRecord(untimed, stream.0));
    let inner = stream.close_gate();
    ok!(cudaEventRecord(end, stream.0));
    assert_eq!(c!(cudaEventElapsedTime(&mut ms, start, end)), NOT_READY);
    assert_eq!(c!(cudaEventElapsedTime(&mut ms, start, untimed)), BAD_HANDLE);
    drop(gate);
    while c!(cudaEventQuery(start)) == NOT_READY {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
    drop(inner);
    stream.wait();
    ok!(cudaEventElapsedTime(&mut ms, start, end));
    assert!((5.0..10_000.0).contains(&ms), "{ms}");
    ok!(cudaEventElapsedTime(&mut ms, end, start));
    assert!(ms <= -5.0, "{ms}");
    let other = TestStream::new(1);
    assert_eq!(c!(cudaEventRecord(start, other.0)), BAD_HANDLE, "an event belongs to one device");
    for event in [start, end, untimed] {
        ok!(cudaEventDestroy(event));
    }
    let mut event = null_mut();
    assert_eq!(c!(cudaEventCreateWithFlags(&mut event, 0x4)), INVALID);
}

#[test]
fn a_host_function_blocks_no_other_stream_and_may_not_call_back() {
    alone!();
    let _expected = expect("inside a host function");
    unsafe extern "C" fn call_back(data: *mut c_void) {
        let mut device = 0;
        // SAFETY: a place to write to; and the test passes a number that outlives the work.
        let (result, number) = unsafe { (cudaGetDevice(&mut device), &*data.cast::<AtomicU32>()) };
        number.store(result.0, Ordering::Relaxed);
    }
    let (blocked, free) = (TestStream::new(0), TestStream::new(0));
    let (count, result) = (AtomicU32::new(0), AtomicU32::new(0));
    let gate = blocked.close_gate();
    ok!(cudaLaunchHostFunc(free.0, Some(add), address(&count)));
    ok!(cudaLaunchHostFunc(free.0, Some(call_back), address(&result)));
    free.wait();
    assert_eq!(count.load(Ordering::Relaxed), 1);
    assert_eq!(cudaError(result.load(Ordering::Relaxed)), cudaError::cudaErrorNotPermitted);
    assert_eq!(c!(cudaStreamQuery(blocked.0)), NOT_READY);
    drop(gate);
    blocked.wait();
}

#[test]
fn the_null_stream_keeps_order_with_blocking_streams_only() {
    // Of its own process: the null stream of a device is shared by all tests.
    isolated!(&[], || {
        let (blocking, free) = (TestStream::with_flags(0, cudaStreamDefault), TestStream::new(0));
        let (legacy, same) = (null_mut(), std::ptr::without_provenance_mut(1));
        let count = AtomicU32::new(0);
        let gate = blocking.close_gate();
        ok!(cudaLaunchHostFunc(legacy, Some(add), address(&count)));
        ok!(cudaLaunchHostFunc(free.0, Some(add), address(&count)));
        free.wait();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(count.load(Ordering::Relaxed), 1, "the null stream waits for the blocking one, the other does not");
        assert_eq!(c!(cudaStreamQuery(legacy)), NOT_READY);
        drop(gate);
        wait(legacy);
        assert_eq!(count.load(Ordering::Relaxed), 2);
        let gate = super::gate(same);
        let early = event(cudaEventDisableTiming);
        ok!(cudaEventRecord(early, blocking.0));
        assert_eq!(c!(cudaEventQuery(early)), NOT_READY, "the stream has no work, but what it waits for has");
        assert_eq!(c!(cudaStreamQuery(blocking.0)), NOT_READY);
        ok!(cudaLaunchHostFunc(blocking.0, Some(add), address(&count)));
        let event = event(cudaEventDisableTiming);
        ok!(cudaEventRecord(event, blocking.0));
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(count.load(Ordering::Relaxed), 2, "a blocking stream waits for the null stream");
        assert_eq!(c!(cudaEventQuery(event)), NOT_READY);
        drop(gate);
        blocking.wait();
        ok!(cudaEventQuery(event));
        assert_eq!(count.load(Ordering::Relaxed), 3);
        ok!(cudaSetDevice(1));
        wait(null_mut());
    });
}

#[test]
fn a_full_launch_queue_blocks_whatever_takes_a_place_in_it() {
    isolated!(&[("GPUCOMM_EMULATOR_QUEUE", "8")], || {
        let (stream, other) = (TestStream::new(0), TestStream::new(0));
        let memory = malloc(192);
        let (timed, untimed) = (event(cudaEventDefault), event(cudaEventDisableTiming));
        let (memory, timed, untimed) = (memory.addr(), timed.addr(), untimed.addr());
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = &COUNT;
        // Each call on its own thread, so addresses, and a number that does not move.
        let call = |kind: u32, stream: usize| {
            let stream = std::ptr::without_provenance_mut(stream);
            let memory: *mut c_void = std::ptr::with_exposed_provenance_mut(memory);
            ok!(cudaSetDevice(0));
            match kind {
                // On other streams elsewhere.
                0 | 8 | 9 => {
                    ok!(cudaMemsetAsync(memory.wrapping_byte_add(64 * (kind as usize % 7)), 1, 64, stream))
                }
                1 => ok!(cudaMemcpyAsync(memory, memory, 64, cudaMemcpyKind::cudaMemcpyDefault, stream)),
                2 => ok!(cudaLaunchHostFunc(stream, Some(add), address(count))),
                3 => ok!(cudaStreamWaitEvent(stream, std::ptr::without_provenance_mut(untimed), 0)),
                4 => ok!(cudaEventRecord(std::ptr::without_provenance_mut(timed), stream)),
                6 => ok!(cudaFreeAsync(malloc(64), stream)),
                5 => enqueue(stream, &[], "a kernel", Box::new(|_: &Running| ())).unwrap(),
                _ => ok!(cudaEventRecord(std::ptr::without_provenance_mut(untimed), stream)),
            }
        };
        let handle = stream.0.addr();
        for kind in 0..8 {
            let hold = other.close_gate();
            call(7, other.0.addr());
            let gate = stream.close_gate();
            for _ in 0..8 {
                call(kind, handle);
            }
            // Streams with another queue are not blocked.
            assert_eq!(c!(cudaStreamQuery(stream.0)), NOT_READY);
            call(6, other.0.addr());
            println!("kind {kind}");
            assert_waits(gate, [0, 1, 5].contains(&kind), || call(kind, handle));
            drop(hold);
            stream.wait();
            other.wait();
        }
        assert_eq!(count.load(Ordering::Relaxed), 9);
        // The ninth stream has the queue of the first.
        let more: Vec<TestStream> = (2..10).map(|_| TestStream::new(0)).collect();
        let gate = stream.close_gate();
        for _ in 0..8 {
            call(0, handle);
        }
        call(8, more[5].0.addr());
        let ninth = more[6].0.addr();
        assert_waits(gate, true, || call(9, ninth));
    },);
}

#[test]
fn work_that_joins_streams_comes_after_all_of_them_and_holds_up_what_follows() {
    alone!();
    let (main, other) = (TestStream::new(0), TestStream::new(0));
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = &COUNT;
    let gate = other.close_gate();
    let join = |at: u32| {
        let work = move |_: &Running| assert_eq!(count.swap(at + 1, Ordering::Relaxed), at);
        enqueue(main.0, &[main.0, other.0, other.0], "a kernel", Box::new(work)).unwrap();
    };
    join(0);
    join(1);
    ok!(cudaLaunchHostFunc(other.0, Some(add), address(count)));
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(count.load(Ordering::Relaxed), 0);
    assert_eq!(c!(cudaStreamQuery(main.0)), NOT_READY);
    drop(gate);
    main.wait();
    other.wait();
    assert_eq!(count.load(Ordering::Relaxed), 3);
    // The other stream waits for the joined work, also while only the main stream is held up.
    let gate = main.close_gate();
    join(3);
    ok!(cudaLaunchHostFunc(other.0, Some(add), address(count)));
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(c!(cudaStreamQuery(other.0)), NOT_READY);
    assert_eq!(count.load(Ordering::Relaxed), 3);
    drop(gate);
    main.wait();
    other.wait();
    assert_eq!(count.load(Ordering::Relaxed), 5);
}

#[test]
fn an_enqueue_is_quick() {
    alone!();
    let stream = TestStream::new(0);
    let memory = malloc(64);
    let gate = stream.close_gate();
    let mut each: Vec<_> = std::iter::repeat_with(|| {
        let start = Instant::now();
        ok!(cudaMemsetAsync(memory, 1, 64, stream.0));
        start.elapsed()
    })
    .take(1000)
    .collect();
    each.sort_unstable();
    // A busy machine takes the processor away from some of them, not from most.
    let median = each[each.len() / 2];
    println!("an enqueue takes {median:?}");
    // A sanitizer makes all of them slower.
    let slower = std::env::var("GPUCOMM_TEST_SLOWER").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1);
    assert!(median < Duration::from_micros(50) * slower, "{median:?}");
    drop(gate);
    stream.wait();
    ok!(cudaFree(memory));
}

#[test]
fn idle_streams_burn_no_time() {
    isolated!(&[], || {
        let streams: Vec<_> = (0..16).map(|index| TestStream::new(index % 4)).collect();
        for stream in &streams {
            let gate = stream.close_gate();
            drop(gate);
            stream.wait();
        }
        ok!(cudaSetDevice(0));
        let gate = streams[0].close_gate();
        let event = event(cudaEventDisableTiming);
        ok!(cudaEventRecord(event, streams[0].0));
        for stream in &streams[1..] {
            ok!(cudaStreamWaitEvent(stream.0, event, 0));
        }
        let before = cpu_time();
        std::thread::sleep(Duration::from_millis(300));
        let used = cpu_time() - before;
        assert!(used < Duration::from_millis(30), "{used:?}");
        drop(gate);
    });
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a struct to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Streams of one launch queue, and one of another: which of them are held up by a stream whose work waits. As was seen on an
/// H200: docs/measurements/2026-11-23-h200-one.md.
#[track_caller]
fn held_up_by_a_stream_that_waits() -> [bool; 2] {
    // The streams of a device take its queues in turn.
    let streams: Vec<_> = (0..=CHANNELS).map(|_| TestStream::new(0)).collect();
    let (first, other, same) = (&streams[0], &streams[1], &streams[CHANNELS]);
    let memory = [malloc(4), malloc(4), malloc(4)];
    let gate = first.close_gate();
    for (memory, stream) in memory.into_iter().zip([first, same, other]) {
        ok!(cudaMemsetAsync(memory, 1, 4, stream.0));
    }
    other.wait();
    // Had it not to wait, it would be done soon after the other one.
    let start = Instant::now();
    while c!(cudaStreamQuery(same.0)) == NOT_READY && start.elapsed() < Duration::from_millis(300) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let held_up = [same, other].map(|stream| c!(cudaStreamQuery(stream.0)) == NOT_READY);
    drop(gate);
    streams.iter().for_each(TestStream::wait);
    memory.into_iter().for_each(|memory| ok!(cudaFree(memory)));
    held_up
}

#[test]
fn streams_of_one_queue_hold_up_each_other_where_queues_keep_their_order() {
    isolated!(&[("GPUCOMM_EMULATOR_QUEUE_ORDER", "1")], || {
        assert_eq!(held_up_by_a_stream_that_waits(), [true, false]);
    });
}

#[test]
fn streams_of_one_queue_do_not_wait_for_each_other() {
    isolated!(&[], || assert_eq!(held_up_by_a_stream_that_waits(), [false, false]));
}

//! Stream capture, and who spoils it.

use super::*;
use crate::cuda::core::capture;
use crate::report::expected::reported;

const FORBIDDEN: cudaError = cudaError::cudaErrorStreamCaptureUnsupported;
const GLOBAL: cudaStreamCaptureMode = cudaStreamCaptureMode::cudaStreamCaptureModeGlobal;
const LOCAL: cudaStreamCaptureMode = cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal;
const RELAXED: cudaStreamCaptureMode = cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;

/// Captures on a stream while `work` runs; how the capture ended.
fn captured(mode: cudaStreamCaptureMode, work: impl FnOnce(cudaStream_t)) -> cudaError {
    let stream = TestStream::new(0);
    ok!(cudaStreamBeginCapture(stream.0, mode));
    assert_eq!(c!(cudaStreamBeginCapture(stream.0, mode)), cudaError::cudaErrorIllegalState);
    work(stream.0);
    let mut graph = null_mut();
    let ended = c!(cudaStreamEndCapture(stream.0, &mut graph));
    if ended == SUCCESS {
        ok!(cudaGraphDestroy(graph));
    }
    assert_eq!(graph.is_null(), ended != SUCCESS);
    let mut graph = null_mut();
    assert_eq!(c!(cudaStreamEndCapture(stream.0, &mut graph)), cudaError::cudaErrorIllegalState);
    ended
}

/// What a call that is potentially unsafe gives on another thread, in `mode`.
fn elsewhere(mode: cudaStreamCaptureMode) -> cudaError {
    std::thread::spawn(move || {
        let mut mode = mode;
        ok!(cudaThreadExchangeStreamCaptureMode(&mut mode));
        assert_eq!(mode, GLOBAL, "that of a new thread");
        let mut ptr = null_mut();
        let result = c!(cudaMalloc(&mut ptr, 64));
        if result == SUCCESS {
            ok!(cudaFree(ptr));
        }
        result
    })
    .join()
    .unwrap()
}

#[test]
fn a_capture_is_spoilt_by_unsafe_calls_of_threads_that_must_heed_it() {
    isolated!(&[], || {
        let spoilt = cudaError::cudaErrorStreamCaptureInvalidated;
        for (capture, other, allowed) in [
            (GLOBAL, GLOBAL, false),
            (GLOBAL, LOCAL, true),
            (GLOBAL, RELAXED, true),
            (LOCAL, GLOBAL, true),
            (RELAXED, GLOBAL, true),
        ] {
            let ended = captured(capture, |_| {
                assert_eq!(elsewhere(other), if allowed { SUCCESS } else { FORBIDDEN }, "{capture:?} {other:?}");
            });
            assert_eq!(ended, if allowed { SUCCESS } else { spoilt }, "{capture:?} {other:?}");
        }
        // The thread that captures heeds its own, unless that is relaxed.
        let event = event(cudaEventDisableTiming);
        for (mode, result) in [(GLOBAL, FORBIDDEN), (LOCAL, FORBIDDEN), (RELAXED, SUCCESS)] {
            let ended = captured(mode, |_| assert_eq!(c!(cudaEventQuery(event)), result));
            assert_eq!(ended == SUCCESS, result == SUCCESS);
        }
    });
}

/// Another thread can end a capture only if the mode is relaxed. An attempt does not spoil the capture.
#[test]
fn a_capture_ends_on_the_thread_where_it_began() {
    isolated!(&[], || {
        for (mode, expected) in [
            (GLOBAL, Err(cudaError::cudaErrorStreamCaptureWrongThread)),
            (LOCAL, Err(cudaError::cudaErrorStreamCaptureWrongThread)),
            (RELAXED, Ok(0)),
        ] {
            let stream = TestStream::new(0);
            ok!(cudaStreamBeginCapture(stream.0, mode));
            let ended = std::thread::scope(|scope| {
                let address = stream.0.expose_provenance();
                let other = scope.spawn(move || {
                    let same = TestStream(std::ptr::with_exposed_provenance_mut(address));
                    let ended = end(&same);
                    std::mem::forget(same);
                    ended
                });
                other.join().unwrap()
            });
            assert_eq!(ended, expected, "{mode:?}");
            if expected.is_err() {
                assert_eq!(end(&stream), Ok(0), "{mode:?}");
            }
        }
    });
}

/// A wait for a device is no matter of modes.
#[test]
fn no_device_is_waited_for_meanwhile() {
    isolated!(&[], || {
        for mode in [GLOBAL, LOCAL, RELAXED] {
            let ended = captured(mode, |_| {
                assert_eq!(capture::leave(1), Ok(()));
                let elsewhere = std::thread::spawn(|| capture::leave(0)).join().unwrap();
                assert_eq!(elsewhere, Err(FORBIDDEN), "{mode:?}");
            });
            assert_eq!(ended, cudaError::cudaErrorStreamCaptureInvalidated, "{mode:?}");
            assert_eq!(capture::leave(0), Ok(()));
        }
    });
}

/// Ends the capture on `stream`: how, and how many nodes the graph has.
fn end(stream: &TestStream) -> Result<usize, cudaError> {
    let mut graph = null_mut();
    let ended = c!(cudaStreamEndCapture(stream.0, &mut graph));
    assert_eq!(graph.is_null(), ended != SUCCESS);
    if ended != SUCCESS {
        return Err(ended);
    }
    let mut nodes = usize::MAX;
    ok!(cudaGraphGetNodes(graph, null_mut(), &mut nodes));
    ok!(cudaGraphDestroy(graph));
    Ok(nodes)
}

fn status(stream: &TestStream) -> u32 {
    let mut status = cudaStreamCaptureStatus::cudaStreamCaptureStatusNone;
    ok!(cudaStreamIsCapturing(stream.0, &mut status));
    status.0
}

/// Each line as an H100 answers it, with CUDA 13.
#[test]
fn captures_fork_and_join_as_on_a_gpu() {
    isolated!(&[], || {
        let streams: [TestStream; 4] = std::array::from_fn(|_| TestStream::new(0));
        let [one, two, three, idle] = &streams;
        let (blocking, legacy) = (TestStream::with_flags(0, 0), null_mut());
        let [fork, back, other, never] = std::array::from_fn(|_| event(cudaEventDisableTiming));
        let memory = malloc(4096);
        let begin = |stream: &TestStream| ok!(cudaStreamBeginCapture(stream.0, LOCAL));
        let record = |event, stream: &TestStream| c!(cudaEventRecord(event, stream.0));
        let wait = |stream: &TestStream, event| c!(cudaStreamWaitEvent(stream.0, event, 0));
        let work = |stream: &TestStream| c!(cudaMemsetAsync(memory, 1, 64, stream.0));
        let invalid = Err(cudaError::cudaErrorStreamCaptureInvalidated);
        let unjoined = Err(cudaError::cudaErrorStreamCaptureUnjoined);
        let begin_with_fork = || {
            begin(one);
            assert_eq!((work(one), record(fork, one), wait(two, fork)), (SUCCESS, SUCCESS, SUCCESS));
        };

        // A fork with work that nobody waits for.
        begin_with_fork();
        assert_eq!((status(two), work(two)), (1, SUCCESS));
        assert_eq!(end(one), unjoined);
        assert_eq!((status(one), status(two), work(two)), (0, 0, SUCCESS));
        // What was recorded in a capture that is over.
        assert_eq!((c!(cudaEventQuery(fork)), wait(two, fork)), (INVALID, INVALID));
        begin(one);
        assert_eq!((wait(one, fork), end(one)), (INVALID, invalid));
        // One that is joined, and work after that.
        let join = || assert_eq!((work(two), record(back, two), wait(one, back)), (SUCCESS, SUCCESS, SUCCESS));
        begin_with_fork();
        join();
        assert_eq!((end(one), status(two)), (Ok(2), 0));
        begin_with_fork();
        join();
        assert_eq!((work(two), end(one)), (SUCCESS, unjoined));
        // One without work needs none.
        begin_with_fork();
        assert_eq!((end(one), status(two)), (Ok(1), 0));
        // Only the stream on which it was begun ends a capture.
        begin_with_fork();
        assert_eq!(end(two), Err(cudaError::cudaErrorStreamCaptureUnmatched));
        assert_eq!((status(one), status(two)), (2, 2));
        assert_eq!(c!(cudaStreamBeginCapture(two.0, LOCAL)), cudaError::cudaErrorIllegalState);
        assert_eq!((end(one), status(two)), (invalid, 0));
        assert_eq!(end(one), Err(cudaError::cudaErrorIllegalState));

        // A capture depends on nothing outside, done or not; but an event that never was is nothing.
        assert_eq!((work(two), record(other, two)), (SUCCESS, SUCCESS));
        two.wait();
        begin(one);
        assert_eq!(wait(one, other), cudaError::cudaErrorStreamCaptureIsolation);
        assert_eq!((status(one), end(one)), (2, invalid));
        begin(one);
        assert_eq!((wait(one, never), work(one), end(one)), (SUCCESS, SUCCESS, Ok(1)));
        // Two stay two.
        begin_with_fork();
        begin(three);
        assert_eq!(wait(three, fork), cudaError::cudaErrorStreamCaptureMerge);
        assert_eq!((end(one), end(three)), (invalid, invalid));

        // Who asks for an event of a capture spoils it in any mode, but not who asks for times.
        for mode in [GLOBAL, LOCAL, RELAXED] {
            ok!(cudaStreamBeginCapture(one.0, mode));
            assert_eq!((record(fork, one), c!(cudaEventQuery(fork))), (SUCCESS, cudaError::cudaErrorCapturedEvent));
            assert_eq!(end(one), invalid);
        }
        let (first, last, mut ms) = (event(cudaEventDefault), event(cudaEventDefault), 0.0);
        begin(one);
        assert_eq!((record(first, one), record(last, one)), (SUCCESS, SUCCESS));
        assert_eq!(c!(cudaEventElapsedTime(&mut ms, first, last)), cudaError::cudaErrorCapturedEvent);
        assert_eq!(end(one), Ok(0));
        // Asking for any stream of it does.
        ok!(cudaStreamBeginCapture(one.0, RELAXED));
        assert_eq!((record(fork, one), wait(two, fork)), (SUCCESS, SUCCESS));
        assert_eq!(c!(cudaStreamQuery(idle.0)), SUCCESS);
        assert_eq!(c!(cudaStreamQuery(two.0)), FORBIDDEN);
        assert_eq!(work(one), cudaError::cudaErrorStreamCaptureInvalidated);
        assert_eq!(record(other, one), cudaError::cudaErrorStreamCaptureInvalidated);
        assert_eq!((wait(three, fork), end(one), status(two)), (INVALID, invalid, 0));

        // The legacy default stream keeps the order of blocking streams, and of no others.
        let implicit = cudaError::cudaErrorStreamCaptureImplicit;
        assert_eq!(c!(cudaStreamBeginCapture(legacy, LOCAL)), FORBIDDEN);
        ok!(cudaStreamBeginCapture(blocking.0, RELAXED));
        let mut ignored = cudaStreamCaptureStatus::cudaStreamCaptureStatusNone;
        assert_eq!((c!(cudaStreamIsCapturing(legacy, &mut ignored)), status(&blocking)), (implicit, 1));
        assert_eq!(c!(cudaMemsetAsync(memory, 1, 64, legacy)), implicit);
        assert_eq!((c!(cudaStreamQuery(legacy)), c!(cudaEventRecord(other, legacy))), (implicit, implicit));
        assert_eq!(end(&blocking), invalid);
        begin(one);
        assert_eq!((c!(cudaMemsetAsync(memory, 1, 64, legacy)), work(&blocking)), (SUCCESS, SUCCESS));
        assert_eq!((record(fork, one), c!(cudaStreamWaitEvent(legacy, fork, 0))), (SUCCESS, implicit));
        assert_eq!(end(one), invalid);

        // Streams that are destroyed: with the first one its capture, but not what another one had to do.
        let gone = TestStream::new(0);
        begin(&gone);
        drop(gone);
        begin(one);
        let gone = TestStream::new(0);
        assert_eq!((record(fork, one), wait(&gone, fork), work(&gone)), (SUCCESS, SUCCESS, SUCCESS));
        drop(gone);
        assert_eq!((status(one), end(one)), (1, unjoined));

        // What is nothing leaves nothing, and what the graph has not allocated it does not free.
        begin(one);
        ok!(cudaMemsetAsync(memory, 1, 0, one.0));
        assert_eq!(c!(cudaFreeAsync(memory, one.0)), INVALID);
        assert_eq!((status(one), end(one)), (1, Ok(0)));
        // Not emulated, and told.
        let (mut pool, mut at) = (null_mut(), null_mut());
        ok!(gpucommPoolCreate(&mut pool, 0));
        begin(one);
        assert_eq!(c!(cudaMallocFromPoolAsync(&mut at, 64, pool, one.0)), FORBIDDEN);
        assert_eq!(end(one), invalid);
        wait_all(&streams);
        ok!(cudaFree(memory));
        assert_eq!(crate::report::count(), 0);
    });
}

fn wait_all(streams: &[TestStream]) {
    streams.iter().for_each(TestStream::wait);
}

/// Likewise.
#[test]
fn graphs_beside_captures() {
    isolated!(&[], || {
        let (one, two) = (TestStream::new(0), TestStream::new(0));
        let (mut graph, mut exec) = (null_mut(), null_mut());
        ok!(cudaStreamBeginCapture(one.0, LOCAL));
        ok!(cudaStreamEndCapture(one.0, &mut graph));
        ok!(cudaGraphInstantiate(&mut exec, graph, 0));
        for mode in [GLOBAL, LOCAL, RELAXED] {
            let beside = |call: &mut dyn FnMut() -> cudaError| {
                ok!(cudaStreamBeginCapture(one.0, mode));
                (call(), end(&one).is_ok())
            };
            let (mut second, mut nodes) = (null_mut(), 0);
            assert_eq!(beside(&mut || c!(cudaGraphLaunch(exec, one.0))), (FORBIDDEN, false));
            assert_eq!(beside(&mut || c!(cudaGraphLaunch(exec, two.0))), (SUCCESS, true));
            assert_eq!(beside(&mut || c!(cudaGraphGetNodes(graph, null_mut(), &mut nodes))), (SUCCESS, true));
            let made = beside(&mut || c!(cudaGraphInstantiate(&mut second, graph, 0)));
            assert_eq!(made, if mode == RELAXED { (SUCCESS, true) } else { (FORBIDDEN, false) });
            if mode == RELAXED {
                assert_eq!(beside(&mut || c!(cudaGraphExecDestroy(second))), (SUCCESS, true));
            }
        }
        assert_eq!(c!(cudaGraphInstantiate(null_mut(), graph, 0)), INVALID);
        assert_eq!(c!(cudaGraphInstantiate(&mut exec, graph, 1 << 40)), INVALID);
        assert_eq!(c!(cudaGraphGetNodes(graph, null_mut(), null_mut())), INVALID);
        ok!(cudaGraphExecDestroy(exec));
        reported("is no executable graph", || assert_eq!(c!(cudaGraphLaunch(exec, two.0)), INVALID));
        reported("is no executable graph", || assert_eq!(c!(cudaGraphExecDestroy(exec)), INVALID));
        ok!(cudaGraphDestroy(graph));
        reported("is no graph", || assert_eq!(c!(cudaGraphDestroy(graph)), INVALID));
        two.wait();
    });
}

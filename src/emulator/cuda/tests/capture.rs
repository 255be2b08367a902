//! Stream capture, and who spoils it.

use super::*;

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
    assert_eq!(c!(cudaStreamEndCapture(stream.0, &mut graph)), cudaError::cudaErrorStreamCaptureUnmatched);
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
    isolated("capture::a_capture_is_spoilt_by_unsafe_calls_of_threads_that_must_heed_it", &[], || {
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
        // Not emulated: work for a stream that is being captured. It is told, and nothing pretends to be a graph.
        let memory = malloc(64);
        let ended = captured(RELAXED, |stream| {
            let mut status = cudaStreamCaptureStatus::cudaStreamCaptureStatusNone;
            ok!(cudaStreamIsCapturing(stream, &mut status));
            assert_eq!(status, cudaStreamCaptureStatus::cudaStreamCaptureStatusActive);
            assert_eq!(c!(cudaMemsetAsync(memory, 1, 64, stream)), FORBIDDEN);
            ok!(cudaStreamIsCapturing(stream, &mut status));
            assert_eq!(status, cudaStreamCaptureStatus::cudaStreamCaptureStatusInvalidated);
        });
        assert_eq!(ended, spoilt);
        ok!(cudaFree(memory));
    });
}

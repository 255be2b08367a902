//! Stream captures, and which calls spoil them.

use super::*;
use crate::report::expected::reported;

const CUDA_FAILED: ncclResult_t = ncclResult_t::ncclUnhandledCudaError;
const GLOBAL: cudaStreamCaptureMode = cudaStreamCaptureMode::cudaStreamCaptureModeGlobal;
const LOCAL: cudaStreamCaptureMode = cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal;
const RELAXED: cudaStreamCaptureMode = cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;

/// Makes a call while this thread captures on another stream: what it gives, and whether it has spoilt the capture.
fn beside<R>(mode: cudaStreamCaptureMode, call: impl FnOnce() -> R) -> (R, bool) {
    let (stream, mut graph) = (stream(), std::ptr::null_mut());
    // SAFETY: the pointer is valid for a write; the graph is destroyed once.
    unsafe {
        assert_eq!(cudaStreamBeginCapture(stream, mode), cudaError::cudaSuccess);
        let result = call();
        let ended = cudaStreamEndCapture(stream, &mut graph);
        if ended == cudaError::cudaSuccess {
            assert_eq!(cudaGraphDestroy(graph), cudaError::cudaSuccess);
        }
        assert_eq!(cudaStreamDestroy(stream), cudaError::cudaSuccess);
        (result, ended != cudaError::cudaSuccess)
    }
}

fn alone(blocking: bool) -> (ncclResult_t, ncclComm_t) {
    init(1, unique_id(), 0, config(blocking))
}

/// What a process of its own does: captures in global mode concern all threads.
pub(super) fn scene() {
    set_device(0);
    let rank = Rank::new(0, 1, alone(true).1);
    let (comm, buffer) = (rank.comm, Buffer::new(&[1.0; 4]));
    let (mut at, mut window, mut child) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: pointers are valid for writes, and memory lives until it is freed.
    unsafe {
        // What may come at any time, or belongs to streams.
        let asked = beside(GLOBAL, || {
            let (mut op, mut factor) = (ncclRedOp_t::ncclSum, 2.0f32);
            let scalar = (&raw mut factor).cast();
            let (float, host) = (ncclDataType_t::ncclFloat32, ncclScalarResidence_t::ncclScalarHostImmediate);
            let mut all = vec![ncclCommCount(comm, &mut 0), ncclCommGetAsyncError(comm, &mut { OK })];
            all.push(ncclRedOpCreatePreMulSum(&mut op, scalar, float, host, comm));
            all.extend([ncclRedOpDestroy(op, comm), rank.all_reduce(&buffer)]);
            all
        });
        assert_eq!(asked, (vec![OK; 5], false));
        rank.wait();
        // What calls CUDA on the calling thread, which its mode may allow.
        for (mode, fails) in [(GLOBAL, true), (LOCAL, true), (RELAXED, false)] {
            let expected = (if fails { CUDA_FAILED } else { OK }, fails);
            let allocated = beside(mode, || ncclMemAlloc(&mut at, 4096));
            assert_eq!(allocated, expected, "{mode:?}");
            let started = beside(mode, || alone(true));
            assert_eq!((started.0.0, started.1), expected, "{mode:?}");
            if !fails {
                assert_eq!(ncclCommDestroy(started.0.1), OK);
                assert_eq!(beside(mode, || ncclMemFree(at)), (OK, false));
            }
        }
        assert_eq!(ncclMemAlloc(&mut at, 4096), OK);
        // The jobs of calls: on this thread, where it is one.
        let mut register = || ncclCommWindowRegister(comm, at, 4096, &mut window, 0);
        assert_eq!(beside(GLOBAL, &mut register), (CUDA_FAILED, true));
        assert!(last_error().contains("ncclCommWindowRegister beside a stream capture"), "{}", last_error());
        assert_eq!(beside(RELAXED, &mut register), (OK, false));
        let mut split = || ncclCommSplit(comm, 0, 0, &mut child, std::ptr::null_mut());
        assert_eq!(beside(LOCAL, &mut split), (CUDA_FAILED, true));
        assert_eq!(ncclCommAbort(child), OK);
        // On threads of NCCL where they are several, whose mode is not that of this one.
        let (mut relaxed, mut second) = (RELAXED, std::ptr::null_mut());
        assert_eq!(cudaThreadExchangeStreamCaptureMode(&mut relaxed), cudaError::cudaSuccess);
        let mut both = || {
            assert_eq!(ncclGroupStart(), OK);
            let results = [&mut child, &mut second].map(|out| ncclCommSplit(comm, 0, 0, out, std::ptr::null_mut()));
            assert_eq!(results, [OK; 2]);
            ncclGroupEnd()
        };
        assert_eq!(beside(GLOBAL, &mut both), (CUDA_FAILED, true));
        assert_eq!([child, second].map(|child| ncclCommAbort(child)), [OK; 2]);
        assert_eq!(cudaThreadExchangeStreamCaptureMode(&mut relaxed), cudaError::cudaSuccess);
        // What waits without looking whether it could.
        assert_eq!(beside(GLOBAL, || ncclCommWindowDeregister(comm, window)), (OK, true));
        assert_eq!(ncclMemFree(at), OK);
        let idle = alone(true).1;
        assert_eq!(beside(GLOBAL, || ncclCommDestroy(idle)), (OK, true));
        // What a revoke has stopped stays so where it cannot wait, and a blocking communicator tells that, too.
        let revoked = Rank::new(0, 1, alone(true).1);
        assert_eq!(beside(GLOBAL, || ncclCommRevoke(revoked.comm, 0)), (CUDA_FAILED, true));
        assert_eq!(revoked.state(), CUDA_FAILED);
        assert_eq!(ncclCommRevoke(revoked.comm, 0), ncclResult_t::ncclInvalidArgument);
        // Who is alone meets nobody whose stop would be seen.
        assert_eq!(ncclCommSplit(revoked.comm, 0, 0, &mut child, std::ptr::null_mut()), OK);
        assert_eq!([child, revoked.comm].map(|comm| ncclCommAbort(comm)), [OK; 2]);
        let busy = Rank::new(0, 1, alone(true).1);
        let hold = hold_up(busy.stream);
        assert_eq!(busy.to_itself(&buffer), OK);
        let lost = beside(GLOBAL, || reported("cannot wait for beside a stream capture", || ncclCommAbort(busy.comm)));
        assert_eq!(lost, (OK, true));
        drop(hold);
        busy.wait();
        // The null stream would wait for a blocking stream that is being captured.
        let other = alone(true).1;
        let (mut blocking, mut graph, null) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        assert_eq!(cudaStreamCreateWithPriority(&mut blocking, cudaStreamDefault, 0), cudaError::cudaSuccess);
        assert_eq!(cudaStreamBeginCapture(blocking, RELAXED), cudaError::cudaSuccess);
        let (float, sum) = (ncclDataType_t::ncclFloat32, ncclRedOp_t::ncclSum);
        assert_eq!(ncclAllReduce(buffer.0, buffer.0, 4, float, sum, other, null), CUDA_FAILED);
        assert!(last_error().contains("906"), "{}", last_error());
        let spoilt = cudaStreamEndCapture(blocking, &mut graph);
        assert_eq!(spoilt, cudaError::cudaErrorStreamCaptureInvalidated);
        assert_eq!(cudaStreamDestroy(blocking), cudaError::cudaSuccess);
    }
}

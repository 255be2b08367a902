//! A device that is lost on demand.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

const LOST: cudaError = cudaError::cudaErrorLaunchFailure;

unsafe extern "C" fn note(called: *mut c_void) {
    // SAFETY: the test passes a flag that outlives the stream's work.
    unsafe { &*called.cast::<AtomicBool>() }.store(true, Ordering::SeqCst);
}

#[test]
fn a_lost_device_does_nothing_more_and_others_go_on() {
    let environment = [("GPUCOMM_EMULATOR_FAULTS", "lose=device0@op3"), ("GPUCOMM_EMULATOR_LOST", "device")];
    let output = isolated!(&environment, || {
        let elsewhere = TestStream::new(1);
        let far = malloc(64);
        let (stream, beside) = (TestStream::new(0), TestStream::new(0));
        let (memory, called, late) = (malloc(64), AtomicBool::new(false), event(cudaEventDisableTiming));
        // SAFETY: device memory of the emulator is memory of this process, and nothing uses it yet.
        unsafe { memory.cast::<u8>().write_bytes(9, 64) };
        let gate = stream.close_gate();
        ok!(cudaMemsetAsync(memory, 1, 32, stream.0));
        ok!(cudaMemsetAsync(memory, 2, 64, stream.0));
        ok!(cudaLaunchHostFunc(stream.0, Some(note), (&raw const called).cast_mut().cast()));
        ok!(cudaEventRecord(late, stream.0));
        ok!(cudaStreamWaitEvent(elsewhere.0, late, 0));
        drop(gate);
        let mut result = NOT_READY;
        while result == NOT_READY {
            result = c!(cudaStreamQuery(stream.0));
        }
        assert_eq!(result, LOST);
        // Another device is not held up, though it waited for this one.
        ok!(cudaMemsetAsync(far, 1, 64, elsewhere.0));
        assert_eq!(download::<u8>(far, 64, elsewhere.0), [1; 64]);
        // SAFETY: as above; the device does nothing any more.
        let bytes = unsafe { std::slice::from_raw_parts(memory.cast::<u8>(), 64) };
        assert_eq!(bytes, [[1; 32], [9; 32]].concat(), "the work before ran, and nothing after");
        assert!(!called.load(Ordering::SeqCst));
        let (mut ptr, mut size, mut other, mut handle) = (null_mut(), 0, 0, null_mut());
        let peer = cudaMemcpyKind::cudaMemcpyDefault;
        for (name, result) in [
            ("cudaMalloc", c!(cudaMalloc(&mut ptr, 8))),
            ("cudaFree", c!(cudaFree(memory))),
            ("cudaHostAlloc", c!(cudaHostAlloc(&mut ptr, 8, 0))),
            ("cudaMemGetInfo", c!(cudaMemGetInfo(&mut size, &mut other))),
            ("cudaMemsetAsync", c!(cudaMemsetAsync(memory, 1, 8, beside.0))),
            ("cudaMemcpyAsync from elsewhere", c!(cudaMemcpyAsync(far, memory, 8, peer, elsewhere.0))),
            ("cudaStreamQuery", c!(cudaStreamQuery(beside.0))),
            ("cudaStreamCreateWithPriority", c!(cudaStreamCreateWithPriority(&mut handle, 0, 0))),
            ("cudaEventQuery", c!(cudaEventQuery(late))),
            ("cudaEventRecord", c!(cudaEventRecord(late, beside.0))),
            ("cudaGetLastError", c!(cudaGetLastError())),
            ("cudaGetLastError again", c!(cudaGetLastError())),
        ] {
            assert_eq!(result, LOST, "{name}");
        }
        ok!(cudaSetDevice(1));
        ok!(cudaFree(far));
        assert_eq!(c!(cudaGetLastError()), SUCCESS, "another device has no error");
        assert_eq!(crate::report::count(), 0);
    });
    if let Some(output) = output {
        assert!(said(&output).contains("device 0 is lost at its work #3, cudaMemsetAsync"), "{}", said(&output));
    }
}

#[test]
fn a_lost_device_takes_all_of_its_process_with_it() {
    let environment = [("GPUCOMM_EMULATOR_FAULTS", "lose=device1@op1"), ("GPUCOMM_EMULATOR_LOST", "process")];
    isolated!(&environment, || {
        let (near, memory) = (TestStream::new(0), malloc(64));
        ok!(cudaMemsetAsync(memory, 1, 64, near.0));
        let far = TestStream::new(1);
        let there = malloc(64);
        ok!(cudaMemsetAsync(there, 1, 64, far.0));
        let mut result = NOT_READY;
        while result == NOT_READY {
            result = c!(cudaStreamQuery(far.0));
        }
        assert_eq!(result, LOST);
        let (mut ptr, mut size, mut other) = (null_mut(), 0, 0);
        for device in [1, 0] {
            let _ = c!(cudaSetDevice(device));
            assert_eq!(c!(cudaMemGetInfo(&mut size, &mut other)), LOST, "device {device}");
            assert_eq!(c!(cudaMalloc(&mut ptr, 8)), LOST, "device {device}");
        }
        assert_eq!(c!(cudaStreamQuery(near.0)), LOST);
        assert_eq!(crate::report::count(), 0);
    });
}

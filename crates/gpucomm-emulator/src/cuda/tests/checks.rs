//! Mistakes of a program that the emulator notices.

use super::*;
use crate::cuda::core::stream::enqueue;
use crate::cuda::core::work::Running;
use crate::memory::usage::locate;
use crate::report;
use crate::report::expected::reported;

#[test]
fn ranges_must_lie_in_one_live_allocation() {
    let output = isolated!(&[], || {
        let stream = TestStream::new(0);
        let memory = malloc(1000);
        let next = malloc(1000);
        reported("cudaMemsetAsync: ", || assert_eq!(c!(cudaMemsetAsync(memory, 0, 1001, stream.0)), INVALID));
        reported("cudaMemsetAsync: ", || {
            assert_eq!(c!(cudaMemsetAsync(next.wrapping_byte_add(1000), 0, 1, stream.0)), INVALID)
        });
        reported("cudaMemsetAsync: ", || {
            assert_eq!(c!(cudaMemsetAsync(memory.wrapping_byte_add(1 << 30), 0, 1, stream.0)), INVALID)
        });
        let mut host = [0u8; 16];
        reported("cudaMemsetAsync: ", || {
            assert_eq!(c!(cudaMemsetAsync(host.as_mut_ptr().cast(), 0, 16, stream.0)), INVALID)
        });
        ok!(cudaFree(next));
        reported("cudaMemsetAsync: ", || assert_eq!(c!(cudaMemsetAsync(next, 0, 1, stream.0)), INVALID));
        assert!(locate(memory, 1000).is_ok() && locate(std::ptr::null(), 0).is_ok());
        assert!(locate(memory, 1001).is_err() && locate(host.as_ptr().cast(), 1).is_err());
        assert_eq!((c!(cudaGetLastError()), c!(cudaGetLastError())), (INVALID, SUCCESS));
        ok!(cudaMemsetAsync(memory, 0, 1000, stream.0));
        stream.wait();
    });
    if let Some(output) = output {
        let text = said(&output);
        assert!(text.contains("cudaMemsetAsync: 1001 bytes at 0x"), "{text}");
        assert!(text.contains("run past the end of the allocation of 1000 bytes at 0x"), "{text}");
        assert!(text.contains("lie in no live allocation of device 0; the nearest: 1000 bytes at 0x"), "{text}");
    }
}

#[test]
fn frees_that_cannot_be() {
    isolated!(&[], || {
        let stream = TestStream::new(0);
        let memory = malloc(4096);
        reported("cudaFree: ", || assert_eq!(c!(cudaFree(memory.wrapping_byte_add(512))), INVALID));
        ok!(cudaFree(memory));
        reported("cudaFree: ", || assert_eq!(c!(cudaFree(memory)), INVALID));
        reported("cudaFree: ", || assert_eq!(c!(cudaFree((&raw const stream).cast_mut().cast())), INVALID));
        let memory = malloc(4096);
        let gate = stream.close_gate();
        ok!(cudaFreeAsync(memory, stream.0));
        reported("cudaFreeAsync: ", || assert_eq!(c!(cudaFreeAsync(memory, stream.0)), INVALID));
        reported("cudaMemsetAsync: ", || assert_eq!(c!(cudaMemsetAsync(memory, 0, 1, stream.0)), INVALID));
        drop(gate);
        stream.wait();
        reported("cudaFree: ", || assert_eq!(c!(cudaFree(memory)), INVALID));
    });
}

#[test]
fn a_free_under_work_of_the_same_stream_is_fine_and_cudafree_waits() {
    isolated!(&[], || {
        let (stream, other) = (TestStream::new(0), TestStream::new(0));
        let (first, second) = (malloc(4096), malloc(4096));
        let gate = stream.close_gate();
        ok!(cudaMemsetAsync(first, 1, 4096, stream.0));
        ok!(cudaMemsetAsync(second, 1, 4096, stream.0));
        ok!(cudaFreeAsync(first, stream.0));
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            drop(gate);
        });
        ok!(cudaFree(second));
        ok!(cudaStreamQuery(stream.0));
        late.join().unwrap();
        // Ordered by an event: also fine.
        let memory = malloc(4096);
        let event = event(cudaEventDisableTiming);
        let gate = stream.close_gate();
        ok!(cudaMemsetAsync(memory, 1, 4096, stream.0));
        ok!(cudaEventRecord(event, stream.0));
        ok!(cudaStreamWaitEvent(other.0, event, 0));
        ok!(cudaFreeAsync(memory, other.0));
        drop(gate);
        other.wait();
        assert_eq!(report::count(), 0);
    });
}

#[test]
fn a_free_under_work_of_another_stream_is_a_sticky_error() {
    let output = isolated!(&[], || {
        let (freed, _races) = (expect("cudaFreeAsync frees"), expect("cudaFreeAsync writes"));
        let illegal = cudaError::cudaErrorIllegalAddress;
        let (stream, other) = (TestStream::new(0), TestStream::new(0));
        let elsewhere = TestStream::new(1);
        ok!(cudaSetDevice(0));
        let memory = malloc(4096);
        let gate = stream.close_gate();
        ok!(cudaMemsetAsync(memory, 1, 4096, stream.0));
        ok!(cudaFreeAsync(memory, other.0));
        while c!(cudaStreamQuery(other.0)) == NOT_READY {
            std::thread::yield_now();
        }
        assert_eq!(freed.count(), 1);
        assert_eq!(c!(cudaStreamQuery(other.0)), illegal);
        assert_eq!(c!(cudaStreamQuery(stream.0)), illegal, "the whole device is lost");
        let mut ptr = null_mut();
        assert_eq!(c!(cudaMalloc(&mut ptr, 8)), illegal);
        assert_eq!((c!(cudaGetLastError()), c!(cudaGetLastError())), (illegal, illegal), "and never forgets");
        drop(gate);
        ok!(cudaStreamQuery(elsewhere.0));
        ok!(cudaSetDevice(1));
        let memory = malloc(8);
        ok!(cudaMemsetAsync(memory, 1, 8, elsewhere.0));
        elsewhere.wait();
    });
    if let Some(output) = output {
        assert!(said(&output).contains("cudaFreeAsync frees 4096 bytes at offset 0x"), "{}", said(&output));
    }
}

#[test]
fn work_that_panics_or_fails_spoils_its_device_only() {
    isolated!(&[], || {
        let _expected = expect("panicked on a stream");
        let (first, second) = (TestStream::new(0), TestStream::new(1));
        ok!(cudaSetDevice(0));
        enqueue(
            first.0,
            &[],
            "a test",
            Box::new(|running: &Running| {
                assert!(!running.cancelled());
                panic!("as it should")
            }),
        )
        .unwrap();
        enqueue(second.0, &[], "another", Box::new(|running: &Running| running.fail(cudaError::cudaErrorUnknown)))
            .unwrap();
        for (stream, error) in [(&first, cudaError::cudaErrorLaunchFailure), (&second, cudaError::cudaErrorUnknown)] {
            let mut result = NOT_READY;
            while result == NOT_READY {
                result = c!(cudaStreamQuery(stream.0));
            }
            assert_eq!(result, error);
            assert_eq!(enqueue(stream.0, &[], "refused", Box::new(|_: &Running| ())), Err(error));
        }
        ok!(cudaStreamQuery(TestStream::new(2).0));
    });
}

#[test]
fn the_memory_of_work_that_outlives_a_free_is_not_handed_out() {
    isolated!(&[("GPUCOMM_EMULATOR_MEMORY", "1M")], || {
        let _expected = expect("cudaFree frees");
        let memory = malloc(1 << 20);
        let (_, used) = locate(memory, 8).unwrap();
        // The sticky error of device 0 follows; its memory is looked at from inside.
        assert_eq!(c!(cudaFree(memory)), cudaError::cudaErrorIllegalAddress);
        let device = crate::cuda::core::device::device(0).unwrap();
        assert_eq!(device.heap.room().0, 0);
        drop(used);
        assert_eq!(device.heap.room().0, 1 << 20);
    },);
}

#[test]
fn memory_returns_though_the_device_of_its_stream_failed() {
    isolated!(&[("GPUCOMM_EMULATOR_MEMORY", "1M")], || {
        let stream = TestStream::new(1);
        ok!(cudaSetDevice(0));
        let memory = malloc(1 << 20);
        let gate = stream.close_gate();
        enqueue(stream.0, &[], "a test", Box::new(|running: &Running| running.fail(cudaError::cudaErrorUnknown)))
            .unwrap();
        enqueue(stream.0, &[], "dropped", Box::new(|_: &Running| panic!("work runs on a failed device"))).unwrap();
        ok!(cudaFreeAsync(memory, stream.0));
        drop(gate);
        let again = malloc(1 << 20);
        assert_eq!((again, report::count()), (memory, 0));
    },);
}

#[test]
fn memory_of_nccl_is_freed_without_a_wait_and_must_not_be_in_use() {
    isolated!(&[], || {
        use crate::cuda::tasks::memory::{allocate, unmap};
        use crate::memory::heap::Origin;
        let stream = TestStream::new(0);
        let (unused, used) = (allocate(0, 4096, Origin::Nccl).unwrap(), allocate(0, 4096, Origin::Nccl).unwrap());
        let gate = stream.close_gate();
        ok!(cudaMemsetAsync(used, 1, 4096, stream.0));
        assert_eq!(unmap(unused), Ok(()));
        assert_eq!(c!(cudaStreamQuery(stream.0)), NOT_READY);
        assert_eq!(unmap(null_mut()), Ok(()));
        let freed = reported("ncclMemFree frees 4096 bytes", || unmap(used));
        assert_eq!(freed, Err(cudaError::cudaErrorIllegalAddress));
        drop(gate);
    });
}

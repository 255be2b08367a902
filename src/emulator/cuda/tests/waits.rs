//! Calls that wait for devices, and who is held up by them.

use super::super::stream::enqueue;
use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Opens `gate` after a while; whether `call` returned only then.
pub(super) fn until_opened(gate: Gate, call: impl FnOnce()) -> bool {
    beside(gate, call, || ()).0
}

/// Opens `gate` after a while; whether `call` returned only then, and `other`, which another thread begins later.
fn beside(gate: Gate, call: impl FnOnce(), other: impl FnOnce() + Send) -> (bool, bool) {
    let opened = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(80));
            opened.store(true, Ordering::SeqCst);
            drop(gate);
        });
        let other = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            other();
            opened.load(Ordering::SeqCst)
        });
        call();
        (opened.load(Ordering::SeqCst), other.join().unwrap())
    })
}

fn pinned() -> *mut c_void {
    let mut ptr = null_mut();
    ok!(cudaHostAlloc(&mut ptr, 64, cudaHostAllocPortable));
    ptr
}

/// Something that enqueues or allocates, on `stream` of device 1.
fn launch(kind: u32, stream: usize) {
    let stream = std::ptr::without_provenance_mut(stream);
    ok!(cudaSetDevice(1));
    match kind {
        0 => enqueue(stream, &[], "a kernel", Box::new(|_| ())).unwrap(),
        1 => ok!(cudaMemsetAsync(malloc(64), 1, 64, stream)),
        2 => ok!(cudaEventRecord(event(cudaEventDefault), stream)),
        _ => assert!(!malloc(64).is_null()),
    }
}

/// Frees pinned memory while one device after the other is busy, and enqueues on device 1 beside it: whether both wait.
fn free_pinned_beside_enqueues() -> Vec<(bool, bool)> {
    let run = |device| {
        let (stream, other) = (TestStream::new(device), TestStream::new(1));
        let handle = other.0.addr();
        let ptr = pinned();
        let gate = stream.close_gate();
        beside(gate, || ok!(cudaFreeHost(ptr)), || (0..4).for_each(|kind| launch(kind, handle)))
    };
    (0..4).map(run).collect()
}

#[test]
fn freeing_pinned_memory_waits_for_all_devices_and_holds_up_who_enqueues_there() {
    isolated("waits::freeing_pinned_memory_waits_for_all_devices_and_holds_up_who_enqueues_there", &[], || {
        assert_eq!(free_pinned_beside_enqueues(), [(true, false), (true, true), (true, false), (true, false)]);
        for kind in 0..4 {
            let (stream, other) = (TestStream::new(1), TestStream::new(1));
            let (handle, ptr) = (other.0.addr(), pinned());
            let gate = stream.close_gate();
            assert_eq!(beside(gate, || ok!(cudaFreeHost(ptr)), || launch(kind, handle)), (true, true), "kind {kind}");
        }
        let stream = TestStream::new(0);
        let gate = stream.close_gate();
        ok!(cudaFreeHost(null_mut()));
        assert!(!pinned().is_null());
        assert_eq!(c!(cudaStreamQuery(stream.0)), NOT_READY, "none of these waits");
        drop(gate);
    });
}

#[test]
fn without_the_lock_nobody_is_held_up() {
    let environment = [("GPUCOMM_EMULATOR_DRIVER_LOCK", "0")];
    isolated("waits::without_the_lock_nobody_is_held_up", &environment, || {
        assert_eq!(free_pinned_beside_enqueues(), [(true, false); 4]);
    });
}

#[test]
fn pinned_memory_may_wait_when_it_is_allocated() {
    let environment = [("GPUCOMM_EMULATOR_DRIVER_LOCK", "2")];
    isolated("waits::pinned_memory_may_wait_when_it_is_allocated", &environment, || {
        let stream = TestStream::new(0);
        let gate = stream.close_gate();
        assert!(until_opened(gate, || assert!(!pinned().is_null())));
    });
}

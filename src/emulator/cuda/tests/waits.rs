//! Calls that wait for devices, and who is held up by them.

use super::*;
use crate::emulator::cuda::core::stream::enqueue;
use crate::emulator::cuda::core::work::Running;
use crate::emulator::cuda::tasks::memory;
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

/// Somebody else's things on a device.
struct Things {
    device: i32,
    stream: TestStream,
    memory: usize,
    event: usize,
}

impl Things {
    fn new(device: i32) -> Self {
        let stream = TestStream::new(device);
        let (memory, event) = (malloc(64).expose_provenance(), event(cudaEventDefault));
        ok!(cudaEventRecord(event, stream.0));
        Self { device, stream, memory, event: event.expose_provenance() }
    }
}

/// A handle on its way to another thread.
fn handle<T>(address: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address)
}

/// What may be held up: [`call`] makes each of them.
const CALLS: [&str; 9] = [
    "a kernel",
    "cudaMemsetAsync",
    "cudaEventRecord",
    "cudaMalloc",
    "cudaStreamCreateWithPriority",
    "cudaEventCreateWithFlags",
    "cudaLaunchHostFunc",
    "cudaStreamWaitEvent",
    "cudaEventDestroy",
];

/// Makes the call on `device`; those that concern events, on an event of it.
fn call(name: &str, (device, stream, memory, event): (i32, usize, usize, usize), foreign: usize) {
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    ok!(cudaSetDevice(device));
    let stream: cudaStream_t = handle(stream);
    match name {
        "a kernel" => enqueue(stream, &[], "a kernel", Box::new(|_: &Running| ())).unwrap(),
        "cudaMemsetAsync" => ok!(cudaMemsetAsync(handle(memory), 1, 64, stream)),
        "cudaEventRecord" => ok!(cudaEventRecord(handle(event), stream)),
        "cudaMalloc" => assert!(!malloc(64).is_null()),
        "cudaStreamCreateWithPriority" => drop(TestStream::new(device)),
        "cudaEventCreateWithFlags" => assert!(!super::event(cudaEventDefault).is_null()),
        "cudaLaunchHostFunc" => ok!(cudaLaunchHostFunc(stream, Some(nothing), null_mut())),
        "cudaStreamWaitEvent" => ok!(cudaStreamWaitEvent(handle(foreign), handle(event), 0)),
        _ => ok!(cudaEventDestroy(handle(event))),
    }
}

/// Frees pinned memory of device `owner` while `busy` works, and makes the call on `device` beside that: whether both wait.
fn free_pinned_beside(name: &str, [owner, busy, device]: [i32; 3]) -> (bool, bool) {
    let (stream, foreign, things) = (TestStream::new(busy), TestStream::new(2), Things::new(device));
    ok!(cudaSetDevice(owner));
    let ptr = pinned();
    let of = (things.device, things.stream.0.expose_provenance(), things.memory, things.event);
    let foreign = foreign.0.expose_provenance();
    let gate = stream.close_gate();
    beside(gate, || ok!(cudaFreeHost(ptr)), || call(name, of, foreign))
}

/// As measured on H200s: docs/measurements/2026-11-21-h200-driver.md.
#[test]
fn freeing_pinned_memory_waits_for_its_device_and_holds_up_calls_there() {
    isolated("waits::freeing_pinned_memory_waits_for_its_device_and_holds_up_calls_there", &[], || {
        for name in CALLS {
            assert_eq!(free_pinned_beside(name, [1, 1, 1]), (true, true), "{name} of the same device");
            assert_eq!(free_pinned_beside(name, [1, 1, 0]), (true, false), "{name} of another device");
        }
        assert_eq!(free_pinned_beside(CALLS[0], [0, 1, 1]), (false, false), "memory of another device");
        let stream = TestStream::new(0);
        let gate = stream.close_gate();
        ok!(cudaFreeHost(null_mut()));
        assert!(!pinned().is_null());
        assert_eq!(c!(cudaStreamQuery(stream.0)), NOT_READY, "none of these waits");
        drop(gate);
    });
}

/// Others that give memory back or take some wait for nothing.
#[test]
fn freeing_device_memory_waits_for_its_device_only() {
    isolated("waits::freeing_device_memory_waits_for_its_device_only", &[], || {
        let (stream, own) = (TestStream::new(1), malloc(64));
        ok!(cudaSetDevice(0));
        let foreign = malloc(64);
        assert!(until_opened(stream.close_gate(), || ok!(cudaFree(own))));
        assert!(!until_opened(stream.close_gate(), || ok!(cudaFree(foreign))));
        ok!(cudaSetDevice(1));
        assert!(!until_opened(stream.close_gate(), || assert!(!malloc(64).is_null())));
        let own = memory::allocate(1, 64, crate::emulator::memory::block::Origin::Nccl).unwrap();
        assert!(!until_opened(stream.close_gate(), || memory::unmap(own).unwrap()), "what ncclMemFree does");
    });
}

#[test]
fn without_the_lock_nobody_is_held_up() {
    let environment = [("GPUCOMM_EMULATOR_DRIVER_LOCK", "0")];
    isolated("waits::without_the_lock_nobody_is_held_up", &environment, || {
        for name in CALLS {
            assert_eq!(free_pinned_beside(name, [1, 1, 1]), (true, false), "{name}");
        }
    });
}

#[test]
fn pinned_memory_may_wait_for_all_devices_and_when_it_is_allocated() {
    let environment = [("GPUCOMM_EMULATOR_DRIVER_LOCK", "2")];
    isolated("waits::pinned_memory_may_wait_for_all_devices_and_when_it_is_allocated", &environment, || {
        let (stream, ptr) = (TestStream::new(0), pinned());
        ok!(cudaSetDevice(1));
        assert!(until_opened(stream.close_gate(), || assert!(!pinned().is_null())));
        assert!(until_opened(stream.close_gate(), || ok!(cudaFreeHost(ptr))));
    });
}

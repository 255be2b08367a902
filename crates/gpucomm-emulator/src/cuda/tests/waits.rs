//! Calls that wait for devices, and who is held up by them.

use super::*;
use crate::cuda::core::stream::enqueue;
use crate::cuda::core::work::Running;
use crate::cuda::tasks::memory;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Instant;

/// What a call does while a gate is closed.
#[derive(Debug, Default)]
struct Call {
    thread: AtomicI32,
    done: AtomicBool,
}

impl Call {
    /// Makes it; whether `opened` was true when it returned.
    fn make(&self, call: impl FnOnce(), opened: &AtomicBool) -> bool {
        // SAFETY: no arguments.
        self.thread.store(unsafe { libc::gettid() }, Ordering::SeqCst);
        call();
        let after = opened.load(Ordering::SeqCst);
        self.done.store(true, Ordering::SeqCst);
        after
    }

    /// Until it has returned, or has slept for a while where it `may_wait`: however busy the machine is.
    fn wait(&self, may_wait: bool) {
        const LOOKS: u32 = 10;
        let (start, mut asleep) = (Instant::now(), 0);
        while !self.done.load(Ordering::SeqCst) && asleep < LOOKS && start.elapsed() < Duration::from_secs(30) {
            let thread = self.thread.load(Ordering::SeqCst);
            let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
            let sleeps = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'));
            asleep = if may_wait && thread != 0 && sleeps { asleep + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Opens `gate` once `call` waits for that, or, where it is not to wait, has returned.
#[track_caller]
pub(super) fn assert_waits(gate: Gate, expected: bool, call: impl FnOnce()) {
    assert_eq!(beside(gate, (expected, false), call, || ()).0, expected);
}

/// The same for `call`, and for `other`, which another thread begins when `call` waits or has returned. Whether each returned only
/// when the gate was open.
fn beside(gate: Gate, expected: (bool, bool), call: impl FnOnce(), other: impl FnOnce() + Send) -> (bool, bool) {
    let (opened, first, second) = (AtomicBool::new(false), Call::default(), Call::default());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            first.wait(expected.0);
            second.make(other, &opened)
        });
        scope.spawn(|| {
            first.wait(expected.0);
            second.wait(expected.1);
            opened.store(true, Ordering::SeqCst);
            drop(gate);
        });
        (first.make(call, &opened), other.join().unwrap())
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

/// Frees pinned memory of device `owner` while `busy` works, and makes the call on `device` beside that: whether both wait, as is
/// `expected`.
#[track_caller]
fn free_pinned_beside(name: &str, [owner, busy, device]: [i32; 3], expected: (bool, bool)) {
    let (stream, foreign, things) = (TestStream::new(busy), TestStream::new(2), Things::new(device));
    ok!(cudaSetDevice(owner));
    let ptr = pinned();
    let of = (things.device, things.stream.0.expose_provenance(), things.memory, things.event);
    let foreign = foreign.0.expose_provenance();
    let gate = stream.close_gate();
    let waited = beside(gate, expected, || ok!(cudaFreeHost(ptr)), || call(name, of, foreign));
    assert_eq!(
        waited, expected,
        "{name}, pinned memory of device {owner}, device {busy} busy, called on device {device}"
    );
}

/// As measured on H200s: docs/measurements/2026-11-21-h200-driver.md.
#[test]
fn freeing_pinned_memory_waits_for_its_device_and_holds_up_calls_there() {
    isolated!(&[], || {
        for name in CALLS {
            free_pinned_beside(name, [1, 1, 1], (true, true));
            free_pinned_beside(name, [1, 1, 0], (true, false));
        }
        free_pinned_beside(CALLS[0], [0, 1, 1], (false, false));
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
    isolated!(&[], || {
        let (stream, own) = (TestStream::new(1), malloc(64));
        ok!(cudaSetDevice(0));
        let foreign = malloc(64);
        assert_waits(stream.close_gate(), true, || ok!(cudaFree(own)));
        assert_waits(stream.close_gate(), false, || ok!(cudaFree(foreign)));
        ok!(cudaSetDevice(1));
        assert_waits(stream.close_gate(), false, || assert!(!malloc(64).is_null()));
        let own = memory::allocate(1, 64, crate::memory::heap::Origin::Nccl).unwrap();
        // What ncclMemFree does.
        assert_waits(stream.close_gate(), false, || memory::unmap(own).unwrap());
    });
}

#[test]
fn without_the_lock_nobody_is_held_up() {
    let environment = [("GPUCOMM_EMULATOR_DRIVER_LOCK", "0")];
    isolated!(&environment, || {
        for name in CALLS {
            free_pinned_beside(name, [1, 1, 1], (true, false));
        }
    });
}

#[test]
fn pinned_memory_may_wait_for_all_devices_and_when_it_is_allocated() {
    let environment = [("GPUCOMM_EMULATOR_DRIVER_LOCK", "2")];
    isolated!(&environment, || {
        let (stream, ptr) = (TestStream::new(0), pinned());
        ok!(cudaSetDevice(1));
        assert_waits(stream.close_gate(), true, || assert!(!pinned().is_null()));
        assert_waits(stream.close_gate(), true, || ok!(cudaFreeHost(ptr)));
    });
}

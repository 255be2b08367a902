//! A device that is lost: its calls say so at once, drops return, and other devices go on.
//!
//! Each scenario is a process: a device does not come back within one. On the emulator the device is lost on demand, on real
//! GPUs by a kernel that traps.

use std::process::Command;
use std::time::{Duration, Instant};

use gpucomm::{Backend, Device, DeviceBuffer, Error, Event, PinnedBuffer, Result, Stream};

use crate::kernel::Kernel;
use crate::{LONG, device, two_devices};

const ROLE: &str = "GPUCOMM_TEST_LOST";

/// Time enough for a call that does not wait.
const SOON: Duration = Duration::from_secs(2);

/// Runs a scenario in a process of its own.
fn scenario(name: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["lost::child", "--exact", "--ignored", "--nocapture"]);
    child.env(ROLE, name).env("GPUCOMM_EMULATOR_FAULTS", "lose=device0@op60").env("GPUCOMM_TIMEOUT", "30");
    // What becomes of the others is to be seen.
    child.env("GPUCOMM_EMULATOR_LOST", "device");
    let output = child.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("scenario passed"), "{name}: {}\n{text}", output.status);
}

#[test]
fn calls_say_so() {
    scenario("calls");
}

#[test]
fn drops_return() {
    scenario("drops");
}

#[test]
fn other_devices_go_on() {
    if two_devices().is_some() {
        scenario("others");
    }
}

#[test]
#[ignore = "a part of the others, in a process of its own"]
fn child() {
    match std::env::var(ROLE).as_deref() {
        Ok("calls") => calls(),
        Ok("drops") => drops(),
        Ok("others") => others(),
        _ => {}
    }
}

/// A kernel that does nothing but fail.
const TRAP: &str = ".version 7.0
.target sm_70
.address_size 64
.visible .entry fail() { trap; }
\0";

/// Loses device 0, and waits until that shows.
fn lose(stream: &Stream) {
    if gpucomm::backend() == Backend::Nvidia {
        let trap = Kernel::load(stream.device(), TRAP, c"fail");
        // SAFETY: the kernel takes nothing, and the stream is alive and of the device that loading has made current.
        unsafe { trap.launch(1, 1, stream.as_raw(), &mut []) };
    }
    let start = Instant::now();
    while start.elapsed() < LONG {
        // On the emulator it is the number of what the device does that counts.
        if let Err(error) = stream.launch_host(|| ()).and_then(|()| stream.synchronize_timeout(LONG)) {
            return assert_lost(&error);
        }
    }
    panic!("the device works");
}

#[track_caller]
fn assert_lost(error: &Error) {
    let Error::DeviceLost { device: 0, code, name, message, .. } = error else { panic!("not lost: {error:?}") };
    assert!(code.as_raw() > 0 && name.starts_with("cudaError") && !message.is_empty(), "{error}");
    assert!(error.to_string().contains("device 0 is lost"), "{error}");
}

/// `call` says at once that the device is lost.
#[track_caller]
fn says_so<T>(what: &str, call: impl FnOnce() -> Result<T>) {
    let start = Instant::now();
    let Err(error) = call() else { panic!("{what} works on a device that is lost") };
    println!("{what}: {error}");
    assert_lost(&error);
    assert!(start.elapsed() < SOON, "{what} took {:?}", start.elapsed());
}

/// What is made before the device is lost.
struct Things {
    stream: Stream,
    other: Stream,
    a: DeviceBuffer<u32>,
    b: DeviceBuffer<u32>,
    source: PinnedBuffer<u32>,
    target: PinnedBuffer<u32>,
    event: Event,
}

const LEN: usize = 5000;

fn things() -> Things {
    let (stream, other) = (Stream::new(device()).unwrap(), Stream::new(device()).unwrap());
    let mut a = DeviceBuffer::from_slice(&stream, &[1; LEN]).unwrap();
    let b = DeviceBuffer::zeroed(&other, LEN).unwrap();
    let (source, mut target) = (PinnedBuffer::from_slice(&[2; LEN]).unwrap(), PinnedBuffer::zeroed(LEN).unwrap());
    a.copy_from_pinned(&stream, &source).unwrap();
    b.copy_to_pinned(&other, &mut target).unwrap();
    let event = stream.record().unwrap();
    Things { stream, other, a, b, source, target, event }
}

fn calls() {
    let mut t = things();
    lose(&t.other);
    for round in 0..3 {
        println!("round {round}");
        says_so("Stream::query", || t.stream.query());
        says_so("Stream::synchronize_timeout", || t.stream.synchronize_timeout(LONG));
        says_so("Stream::record", || t.stream.record());
        says_so("Stream::wait_event", || t.stream.wait_event(&t.event));
        says_so("Event::synchronize_timeout", || t.event.synchronize_timeout(LONG));
        says_so("Event::record", || t.event.record(&t.other));
        says_so("fill", || t.a.fill(&t.stream, 0x0102_0304));
        says_so("zero", || t.a.fill(&t.stream, 0));
        says_so("copy", || t.a.copy_from(&t.stream, &t.b));
        says_so("upload", || t.b.copy_from_slice(&t.other, &[1; LEN]));
        says_so("download", || t.b.to_vec(&t.other));
        says_so("copy_from_pinned", || t.a.copy_from_pinned(&t.stream, &t.source));
        says_so("copy_to_pinned", || t.b.copy_to_pinned(&t.other, &mut t.target));
        says_so("launch_host", || t.stream.launch_host(|| ()));
        says_so("as_slice_mut", || t.source.as_slice_mut().map(|_| ()));
        says_so("DeviceBuffer::zeroed", || DeviceBuffer::<u8>::zeroed(&t.stream, 100));
        says_so("memory_info", || device().memory_info());
    }
    // As many as would fill any queue, and all memory for staging.
    for _ in 0..3000 {
        says_so("upload", || t.b.copy_from_slice(&t.stream, &[1; LEN]));
    }
    println!("scenario passed");
}

fn drops() {
    let t = things();
    let many: Vec<_> = (0..10).map(|_| things()).map(|t| (t.a, t.b, t.source, t.target)).collect();
    lose(&t.other);
    let start = Instant::now();
    drop(t);
    drop(many);
    assert!(start.elapsed() < SOON, "drops took {:?}", start.elapsed());
    println!("scenario passed");
}

/// Every call for a device that went with another says so at once, and drops return.
fn also_lost(device: Device, stream: &Stream, mut x: DeviceBuffer<u32>) {
    let start = Instant::now();
    let errors = [
        stream.query().expect_err("a query"),
        stream.synchronize_timeout(LONG).expect_err("a wait"),
        x.fill(stream, 1).expect_err("a fill"),
        x.to_vec(stream).map(drop).expect_err("a download"),
        Stream::new(device).map(drop).expect_err("a stream"),
    ];
    assert!(errors.iter().all(|error| matches!(error, Error::DeviceLost { .. })), "{errors:?}");
    drop(x);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    println!("scenario passed");
}

fn others() {
    let (_, second) = two_devices().unwrap();
    let t = things();
    let stream = Stream::new(second).unwrap();
    let mut x = DeviceBuffer::from_slice(&stream, &[7u32; LEN]).unwrap();
    lose(&t.stream);
    says_so("a copy from the lost device", || x.copy_from(&t.stream, &t.a));
    if let Err(error) = second.memory_info() {
        // The driver may let a kernel that traps take all devices of the process with it.
        assert_eq!(gpucomm::backend(), Backend::Nvidia, "{error}");
        return also_lost(second, &stream, x);
    }
    let mut pinned = PinnedBuffer::from_slice(&[3u32; LEN]).unwrap();
    for round in 0..300 {
        let mut y = DeviceBuffer::<u32>::zeroed(&stream, LEN).unwrap();
        y.copy_from_pinned(&stream, &pinned).unwrap();
        x.copy_from(&stream, &y).unwrap();
        y.fill(&stream, round).unwrap();
        y.copy_to_pinned(&stream, &mut pinned).unwrap();
        assert_eq!(y.to_vec(&stream).unwrap(), [round; LEN]);
        assert_eq!(pinned.as_slice().unwrap(), [round; LEN]);
    }
    assert_eq!(x.to_vec(&stream).unwrap(), [298; LEN]);
    stream.synchronize_timeout(LONG).unwrap();
    second.memory_info().unwrap();
    drop((t, x, stream));
    println!("scenario passed");
}

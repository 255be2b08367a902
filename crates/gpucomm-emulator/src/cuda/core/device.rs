//! Devices: what each one owns, which one is current, the error that sticks to it, and the lock of its driver.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Once, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::cuda::core::line::{CHANNELS, Channel, Line, Manner, Ticket};
use crate::fault::Work;
use crate::lock::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::memory::access::Access;
use crate::memory::heap;
use crate::memory::heap::Heap;
use crate::settings::settings;
use crate::sys::cudaError;
use crate::{fault, report, settings};

/// One emulated GPU.
#[derive(Debug)]
pub(crate) struct Device {
    /// Its number in this process, from 0.
    pub ordinal: i32,
    /// Its memory.
    pub heap: &'static Heap,
    /// This process has set up its context.
    used: AtomicBool,
    /// The code of the error that every call returns since it happened, 0 before.
    sticky: AtomicU32,
    /// How many pieces of work have begun.
    begun: AtomicU64,
    /// How many waits.
    waits: AtomicU64,
    /// See [`crate::cuda::core::device`].
    pub driver: RwLock<()>,
    /// The bytes of local memory for each thread that this process has made here.
    local_memory: AtomicUsize,
    /// `cudaLimitStackSize`.
    stack_limit: AtomicUsize,
    channels: [Channel; CHANNELS],
    /// How many streams were ever made.
    made: AtomicUsize,
    /// That of the stream behind the null handle.
    legacy: OnceLock<Arc<Line>>,
    /// Those of all streams with a handle or with work left.
    lines: Mutex<Vec<Weak<Line>>>,
}

static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| {
    watch_forks();
    (0..).map_while(|ordinal| Some(Device::new(ordinal, heap::of(ordinal)?))).collect()
});

thread_local! {
    static CURRENT: Cell<i32> = const { Cell::new(0) };
}

/// All devices of this process.
pub(crate) fn devices() -> &'static [Device] {
    &DEVICES
}

/// How many devices there are.
pub(crate) fn device_count() -> i32 {
    devices().len() as i32
}

/// Why there is no device, where there is none.
pub(crate) fn none() -> cudaError {
    if settings::wrong().is_some() { cudaError::cudaErrorInitializationError } else { cudaError::cudaErrorNoDevice }
}

/// The device that calls of this thread go to; 0 until it was set.
pub(crate) fn current_device() -> i32 {
    CURRENT.get()
}

/// Makes `ordinal` the current device of this thread, and sets it up, as CUDA does since 12.0.
pub(crate) fn set_current(ordinal: i32) -> Result<(), cudaError> {
    device(ordinal)?.set_up();
    CURRENT.set(ordinal);
    Ok(())
}

/// The device with this number.
pub(crate) fn device(ordinal: i32) -> Result<&'static Device, cudaError> {
    if devices().is_empty() {
        return Err(none());
    }
    usize::try_from(ordinal).ok().and_then(|index| devices().get(index)).ok_or(cudaError::cudaErrorInvalidDevice)
}

/// The current device of this thread.
pub(crate) fn current() -> Result<&'static Device, cudaError> {
    device(current_device())
}

/// The PCI bus id of a device of the machine.
pub(crate) fn bus_id(number: i32) -> String {
    format!("{:04X}:{:02X}:00.0", domain(number), bus(number))
}

/// The domain of a device of the machine: each has 255 buses.
pub(crate) fn domain(number: i32) -> i32 {
    number / 255
}

/// The bus of a device of the machine. Buses count from 1.
pub(crate) fn bus(number: i32) -> i32 {
    number % 255 + 1
}

/// What a bus id names: domain, bus, device and function, the first and the last of which may be left out.
pub(crate) fn place(id: &str) -> Option<[u32; 4]> {
    let (id, function) = id.split_once('.').unwrap_or((id, "0"));
    let (front, device) = id.rsplit_once(':')?;
    let (domain, bus) = front.rsplit_once(':').unwrap_or(("0", front));
    let [domain, bus, device, function] =
        [domain, bus, device, function].map(|digits| u32::from_str_radix(digits, 16).ok());
    Some([domain?, bus?, device?, function?])
}

/// Whether the device with this ordinal answers calls that concern it; the error of one that is lost.
pub(crate) fn answers(ordinal: i32) -> Result<(), cudaError> {
    device(ordinal)?.check()
}

/// What a library does first, so that CUDA is there: sets up the device with this ordinal, if it answers.
pub(crate) fn start(ordinal: i32) -> Result<(), cudaError> {
    device(ordinal)?.set_up();
    answers(ordinal)
}

impl Device {
    fn new(ordinal: i32, heap: &'static Heap) -> Self {
        Self {
            ordinal,
            heap,
            used: AtomicBool::new(false),
            sticky: AtomicU32::new(0),
            begun: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            driver: RwLock::new(()),
            local_memory: AtomicUsize::new(STACK_LIMIT),
            stack_limit: AtomicUsize::new(STACK_LIMIT),
            channels: Default::default(),
            made: AtomicUsize::new(0),
            legacy: OnceLock::new(),
            lines: Mutex::default(),
        }
    }

    /// Its number on the machine, which is the same in all processes.
    pub fn number(&self) -> i32 {
        self.heap.ground.number
    }

    /// Sets up its primary context, where that is not done.
    pub fn set_up(&self) {
        if !self.is_used() {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether this process has set up its primary context.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// The sticky error, if one happened.
    pub fn check(&self) -> Result<(), cudaError> {
        match self.sticky.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(cudaError(code)),
        }
    }

    /// Makes `error` stick, unless another one does: on all devices of this process, where nothing else was asked for.
    pub fn fail(&self, error: cudaError) {
        let stick = |device: &Self| {
            let _ = device.sticky.compare_exchange(0, error.0, Ordering::AcqRel, Ordering::Relaxed);
        };
        stick(self);
        if settings::settings().lost_together {
            devices().iter().for_each(stick);
        }
    }

    /// Counts a wait, or the time of an event, that a stream has come to; it may last longer, as was asked for.
    pub fn begin_wait(&self) {
        let number = self.waits.fetch_add(1, Ordering::Relaxed) + 1;
        self.dawdle(Work::Wait, number);
    }

    fn dawdle(&self, work: Work, number: u64) {
        if let Some(delay) = fault::slows(self.number(), work, number) {
            std::thread::sleep(delay);
        }
    }

    /// Counts the work `name` that is about to begin; a fault that was asked for may hold it up, or take the device away from it.
    pub fn begin_work(&self, name: &str) {
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        self.dawdle(Work::of(name), number);
        if fault::loses(self.number(), number) {
            let (variable, device) = (fault::VARIABLE, self.ordinal);
            report::line(format!("injected by {variable}: device {device} is lost at its work #{number}, {name}"));
            self.fail(cudaError::cudaErrorLaunchFailure);
        }
    }

    /// Opens the memory of cudaMalloc of `peer` to work of this device.
    pub fn enable_peer(&self, peer: &Device) -> Result<(), cudaError> {
        if peer.ordinal == self.ordinal {
            return Err(cudaError::cudaErrorInvalidDevice);
        }
        match peer.heap.ground.rights.set(self.ordinal, Access::ReadWrite) {
            Access::None => Ok(()),
            _ => Err(cudaError::cudaErrorPeerAccessAlreadyEnabled),
        }
    }

    /// The line of the stream behind the null handle, if that was ever used.
    pub fn legacy_if_used(&self) -> Option<&Arc<Line>> {
        self.legacy.get()
    }

    /// The launch queue of the next stream.
    pub fn next_channel(&self) -> &Channel {
        &self.channels[self.made.fetch_add(1, Ordering::Relaxed) % CHANNELS]
    }

    /// Counts the stream of `line` among those of this device.
    pub fn adopt(&self, line: &Arc<Line>) {
        let mut lines = self.lines.lock();
        lines.retain(|line| line.strong_count() > 0);
        lines.push(Arc::downgrade(line));
        if line.manner == Manner::Legacy {
            let _ = self.legacy.set(line.clone());
        }
    }

    /// The lines of the streams of this device, of the legacy one too where it was used.
    pub fn lines(&self) -> Vec<Arc<Line>> {
        self.lines.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Waits until the work that was enqueued before this call is done.
    pub fn synchronize(&self) {
        let tickets: Vec<Ticket> = self.lines().iter().map(Line::last).collect();
        tickets.iter().for_each(Ticket::wait);
    }
}

// The lock that the driver has for each device.
//
// As was seen on H200s, who waits for a device in `cudaFreeHost` or `cudaFree` holds it: calls of other threads that enqueue
// there, or make or destroy something there, wait too, also when the device waits for just these threads.
// GPUCOMM_EMULATOR_DRIVER_LOCK=0 does without; with 2, `cudaFreeHost` and `cudaHostAlloc` wait for all devices, as others
// have reported and we have not seen.

/// For a call that enqueues or makes something. One call takes it once: a second time would wait behind who waits for the
/// first.
pub(crate) fn share_driver(device: &Device) -> Option<RwLockReadGuard<'_, ()>> {
    (settings().driver_lock > 0).then(|| device.driver.read())
}

/// For a call that waits for the device, as long as it does.
pub(crate) fn lock_driver(device: &Device) -> Option<RwLockWriteGuard<'_, ()>> {
    (settings().driver_lock > 0).then(|| device.driver.write())
}

/// Waits until no thread holds the driver lock of `device` while it waits for that device. A call for
/// another device does this if it also uses `device`.
pub(crate) fn pass_driver(device: &Device) {
    drop(share_driver(device));
}

/// Waits for the device, with its lock.
pub(crate) fn wait_for_device(device: &Device) {
    let _alone = lock_driver(device);
    device.synchronize();
}

/// The limit of the stack of CUDA unless a program sets it, in bytes.
const STACK_LIMIT: usize = 1024;

/// Makes so many bytes of local memory for each thread, for a kernel that needs more than any before it. As was seen on H200s, the
/// driver then waits for everything on the device, and holds its lock. Returns how long that took. Unit tests of this crate occupy
/// devices before their first operation, so it does nothing there.
pub(crate) fn make_local_memory(device: &Device, bytes: usize) -> Duration {
    let begin = Instant::now();
    if !cfg!(test) && settings().driver_lock > 0 && device.local_memory.fetch_max(bytes, Ordering::AcqRel) < bytes {
        wait_for_device(device);
    }
    begin.elapsed()
}

/// Wraps `cudaDeviceSetLimit`, for the size of the stack.
pub(crate) fn set_stack_limit(device: &Device, bytes: usize) {
    device.stack_limit.store(bytes, Ordering::Relaxed);
    make_local_memory(device, bytes);
}

/// Wraps `cudaDeviceGetLimit`, for the size of the stack.
pub(crate) fn stack_limit(device: &Device) -> usize {
    device.stack_limit.load(Ordering::Relaxed)
}

/// Waits for one device after the other.
pub(crate) fn wait_for_devices() {
    devices().iter().for_each(wait_for_device);
}

/// One `T` for each device.
#[derive(Debug)]
pub(super) struct PerDevice<T>(LazyLock<Vec<T>>);

impl<T: Default> PerDevice<T> {
    pub(super) const fn new() -> Self {
        Self(LazyLock::new(|| devices().iter().map(|_| T::default()).collect()))
    }

    /// That of `device`.
    pub(super) fn of(&self, device: &Device) -> &T {
        &self.0[device.ordinal as usize]
    }
}

static WATCHED: Once = Once::new();
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// From now on children know that they are forked. Called where the first device state is made: a child that is forked
/// before that starts afresh.
pub(crate) fn watch_forks() {
    WATCHED.call_once(|| {
        // SAFETY: the handler is a static function that only stores an atomic, which is allowed after a fork.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// The error of every call in a forked child.
pub(crate) fn refuse_in_fork() -> Result<(), cudaError> {
    if FORKED.load(Ordering::Relaxed) { Err(cudaError::cudaErrorInitializationError) } else { Ok(()) }
}

#[cfg(test)]
mod device_tests {
    use super::*;

    #[test]
    fn the_current_device_belongs_to_the_thread() {
        set_current(1).unwrap();
        assert_eq!(current_device(), 1);
        std::thread::spawn(|| assert_eq!(current_device(), 0)).join().unwrap();
        assert_eq!(set_current(-1), Err(cudaError::cudaErrorInvalidDevice));
        assert_eq!(set_current(device_count()), Err(cudaError::cudaErrorInvalidDevice));
        assert_eq!(current_device(), 1);
    }

    #[test]
    fn bus_ids_name_places() {
        for (id, want) in [
            ("0000:0A:00.0", Some([0, 10, 0, 0])),
            ("1:a:0", Some([1, 10, 0, 0])),
            ("0a:1f.1", Some([0, 10, 31, 1])),
            ("0a", None),
            ("", None),
            ("0000:0x:00.0", None),
            ("0000:0a:00.", None),
            ("0:0:0:0", None),
        ] {
            assert_eq!(place(id), want, "{id:?}");
        }
    }

    #[test]
    fn the_first_sticky_error_stays() {
        let device = Device::new(63, heap::of(0).unwrap());
        assert_eq!(device.check(), Ok(()));
        device.fail(cudaError::cudaErrorIllegalAddress);
        device.fail(cudaError::cudaErrorUnknown);
        assert_eq!(device.check(), Err(cudaError::cudaErrorIllegalAddress));
    }
}

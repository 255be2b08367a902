//! What is kept per device for the life of the process: the memory pool and spare events.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::attribute::DeviceAttribute;
use super::check::{check, check_memory};
use super::device::Device;
use crate::error::Result;
use crate::lock::Mutex;
use crate::sys;

/// A handle of the CUDA runtime, kept in a static.
pub(crate) struct Handle<T>(pub(crate) *mut T);

// SAFETY: events and pools may be used from any thread; the pointer is opaque and never read through.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

/// How many spare events a device keeps.
const SPARE_EVENTS: usize = 1024;

/// What is kept for one device.
pub(crate) struct PerDevice {
    /// `None` where the device has no pools.
    pool: OnceLock<Option<Handle<sys::CUmemPoolHandle_st>>>,
    events: Mutex<Vec<Handle<sys::CUevent_st>>>,
    /// Streams that are alive.
    streams: AtomicU64,
}

/// What is kept for `device`.
pub(crate) fn of(device: Device) -> Result<&'static PerDevice> {
    static ALL: OnceLock<Box<[PerDevice]>> = OnceLock::new();
    let all = match ALL.get() {
        Some(all) => all,
        None => {
            let count = Device::count()?;
            ALL.get_or_init(|| {
                (0..count)
                    .map(|_| PerDevice {
                        pool: OnceLock::new(),
                        events: Mutex::new(Vec::new()),
                        streams: AtomicU64::new(0),
                    })
                    .collect()
            })
        }
    };
    // A `Device` is made only for ordinals below the count.
    Ok(&all[device.index()])
}

/// Counts the streams of `device`: one more, or one less.
pub(crate) fn count_stream(device: Device, more: bool) {
    if let Ok(kept) = of(device) {
        kept.streams.fetch_add(if more { 1 } else { u64::MAX }, Ordering::Relaxed);
    }
}

/// How many streams of `device` there are.
pub(crate) fn streams(device: Device) -> u64 {
    of(device).map_or(1, |kept| kept.streams.load(Ordering::Relaxed))
}

/// The pool of `device`, made when it is first asked for; `None` where the device has no pools. The device is current.
pub(crate) fn memory(device: Device) -> Result<Option<sys::cudaMemPool_t>> {
    let kept = of(device)?;
    if let Some(pool) = kept.pool.get() {
        return Ok(pool.as_ref().map(|p| p.0));
    }
    static MAKING: Mutex<()> = Mutex::new(());
    let _one = MAKING.lock();
    if let Some(pool) = kept.pool.get() {
        return Ok(pool.as_ref().map(|p| p.0));
    }
    let made = if device.attribute(DeviceAttribute::MEMORY_POOLS_SUPPORTED)? == 0 {
        None
    } else {
        let mut pool = std::ptr::null_mut();
        // SAFETY: writes a handle to the address given.
        let code = unsafe { sys::gpucommPoolCreate(&raw mut pool, device.ordinal()) };
        check_memory("cudaMemPoolCreate", code, 0, || device.to_string())?;
        Some(Handle(pool))
    };
    Ok(kept.pool.get_or_init(|| made).as_ref().map(|p| p.0))
}

/// An event without timing, from the spare ones if there are any.
pub(crate) fn take_event(device: Device) -> Result<sys::cudaEvent_t> {
    let spare = of(device)?.events.lock().pop();
    match spare {
        Some(event) => Ok(event.0),
        None => create_event("cudaEventCreateWithFlags", device, sys::cudaEventDisableTiming),
    }
}

/// Wraps `cudaEventCreateWithFlags` on `device`, for `operation`.
pub(crate) fn create_event(operation: &'static str, device: Device, flags: u32) -> Result<sys::cudaEvent_t> {
    let _current = device.make_current(operation)?;
    let mut event = std::ptr::null_mut();
    // SAFETY: writes a handle to the address given.
    check("cudaEventCreateWithFlags", unsafe { sys::cudaEventCreateWithFlags(&raw mut event, flags) })?;
    Ok(event)
}

/// Takes back an event of [`take_event`]. A stream that was told to wait for it waits for what was recorded then, so
/// it can be recorded anew at once.
pub(crate) fn give_event(device: Device, event: sys::cudaEvent_t) {
    if let Ok(kept) = of(device) {
        let mut events = kept.events.lock();
        if events.len() < SPARE_EVENTS {
            events.push(Handle(event));
            return;
        }
    }
    if !super::thread::is_off_limits() {
        // SAFETY: the event came from `take_event`, and the caller gives it up.
        let _ = check("cudaEventDestroy", unsafe { sys::cudaEventDestroy(event) });
    }
}

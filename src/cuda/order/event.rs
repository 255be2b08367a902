//! Events: points in the work of streams.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use super::in_flight::ENTRY;
use super::stream;
use super::stream::Stream;
use crate::cuda::devices::check::{check, check_on, check_ready};
use crate::cuda::devices::device::{Device, in_host_function};
use crate::cuda::devices::pool;
use crate::cuda::devices::settle::undisturbing;
use crate::cuda::works::work::Origins;
use crate::deadline::{Deadline, default_timeout};
use crate::error::{Error, Result};
use crate::sys;

/// A point in the work of a stream, that the host and other streams can wait for.
///
/// An event that was never recorded counts as reached.
pub struct Event {
    raw: sys::cudaEvent_t,
    device: Device,
    /// Whether it may take the time: of those that others made only CUDA knows.
    timing: bool,
    /// Whether it is destroyed with this value.
    ours: bool,
    /// Whether others have the handle, and may record it on a stream that is being captured.
    shared: AtomicBool,
    /// Held by who records it or has a stream wait for it, so that CUDA and `last` mean the same record.
    turn: Mutex<()>,
    /// Twice how often it was recorded; odd while it is. Who asks the device holds nothing: it compares this before and after.
    records: AtomicU64,
    last: Mutex<Record>,
}

/// What an event stands for, as it was recorded last.
#[derive(Clone, Default)]
struct Record {
    /// The operations of communicators that come before it.
    origins: Origins,
    /// Where it was recorded; unknown where there are no origins.
    stream: Weak<stream::Inner>,
}

impl Record {
    fn of(stream: &Stream) -> Self {
        let origins = stream.history().origins();
        let stream = if origins.is_empty() { Weak::new() } else { stream.downgrade() };
        Self { origins, stream }
    }

    /// What a wait of `operation` reports when the device is done.
    fn judge(&self, operation: &'static str, deadline: &Deadline) -> Result<()> {
        self.told(self.origins.judge_within(operation, deadline))
    }

    /// What was found, of which the stream counts as told.
    fn told(&self, judged: Result<()>) -> Result<()> {
        judged.inspect_err(|_| self.tell(false))
    }

    /// A wait for it is one for its stream, to which it has told what has failed, or takes too long.
    fn tell(&self, late: bool) {
        if let Some(stream) = Stream::upgrade(&self.stream) {
            stream.history().tell(&self.origins, late);
        }
    }
}

// SAFETY: the CUDA runtime allows events to be used from any thread, and from several at a time.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Wraps `cudaEventCreateWithFlags`: an event for waiting, without a time.
    ///
    /// # Errors
    /// What CUDA says.
    pub fn new(device: Device) -> Result<Self> {
        Self::make("Event::new", device, false)
    }

    /// Wraps `cudaEventCreateWithFlags`: an event that also takes the time, for [`Event::elapsed_since`].
    ///
    /// # Errors
    /// What CUDA says.
    pub fn timing(device: Device) -> Result<Self> {
        Self::make("Event::timing", device, true)
    }

    pub(crate) fn make(operation: &'static str, device: Device, timing: bool) -> Result<Self> {
        let flags = if timing { sys::cudaEventDefault } else { sys::cudaEventDisableTiming };
        let raw = pool::create_event(operation, device, flags)?;
        let (turn, records, last) = (Mutex::new(()), AtomicU64::new(0), Mutex::default());
        Ok(Self { raw, device, timing, ours: true, shared: AtomicBool::new(false), turn, records, last })
    }

    /// An event that somebody else made and destroys.
    ///
    /// Where others have recorded it, waits of this crate know nothing of what that covers: not which operations of communicators have
    /// failed there. [`Event::elapsed_since`] is an error of CUDA where it takes no time.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Device, Event, Stream};
    ///
    /// # if Device::count().is_err() { return Ok(()) }
    /// let device = Device::new(0)?;
    /// let raw = Event::new(device)?.into_raw();
    /// // SAFETY: an event of this device, which nobody has destroyed; this is the only value made of it.
    /// let event = unsafe { Event::from_raw(device, raw) };
    /// event.record(&Stream::new(device)?)?;
    /// event.synchronize()?;
    /// # let code = unsafe { gpucomm::sys::cudaEventDestroy(event.into_raw()) };
    /// # assert_eq!(code, gpucomm::sys::cudaError::cudaSuccess);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// `raw` is an event of `device`, and stays alive as long as the returned value. No other value is made of it meanwhile.
    pub unsafe fn from_raw(device: Device, raw: sys::cudaEvent_t) -> Self {
        let (turn, records, last) = (Mutex::new(()), AtomicU64::new(0), Mutex::default());
        Self { raw, device, timing: true, ours: false, shared: AtomicBool::new(true), turn, records, last }
    }

    /// The `cudaEvent_t`, which the caller destroys.
    pub fn into_raw(mut self) -> sys::cudaEvent_t {
        self.ours = false;
        self.raw
    }

    /// The device it belongs to.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Wraps `cudaEventRecord`: the event is reached when the work is done that is on `stream` now.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a stream of another device; [`Error::Timeout`] where too much is on its way there;
    /// what CUDA says.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.record_for("Event::record", stream)
    }

    /// The record of `operation`.
    pub(crate) fn record_for(&self, operation: &'static str, stream: &Stream) -> Result<()> {
        if stream.device() != self.device {
            return Err(Error::argument(operation, "stream", self.device, stream.device()));
        }
        self.device.ready(operation)?;
        stream.room_for_one(operation, default_timeout())?;
        let _turn = self.turn(operation)?;
        // Before the event: what is enqueued in between need not be covered by it.
        let record = Record::of(stream);
        self.records.fetch_add(1, Ordering::AcqRel);
        // SAFETY: both handles are alive, and of one device.
        let code = unsafe { sys::cudaEventRecord(self.raw, stream.raw()) };
        stream.count(ENTRY);
        let result = check_on(self.device.ordinal(), "cudaEventRecord", code);
        if result.is_ok() {
            *self.lock() = record;
        }
        self.records.fetch_add(1, Ordering::AcqRel);
        result
    }

    /// Makes a call of `operation` that means the event as it was recorded last: the operations of communicators that come
    /// before that.
    pub(crate) fn last_record(&self, operation: &'static str, call: impl FnOnce() -> Result<()>) -> Result<Origins> {
        let _turn = self.turn(operation)?;
        call()?;
        Ok(self.lock().origins.clone())
    }

    /// Waits for other threads that record the event, or have a stream wait for it.
    fn turn(&self, operation: &'static str) -> Result<MutexGuard<'_, ()>> {
        let take = || match self.turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(turn) = take() {
            return Ok(turn);
        }
        let deadline = Deadline::after(default_timeout());
        deadline.until(|| Ok(take()))?.ok_or_else(|| {
            deadline.error(operation, "another thread that records this event, or has a stream wait for it")
        })
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// If it is reached: what it stands for. Not while it is recorded: who records it
    /// makes of it an event that is not reached yet.
    fn reached(&self) -> Result<Option<Record>> {
        let before = self.records.load(Ordering::Acquire);
        if before % 2 == 1 || !self.is_reached()? {
            return Ok(None);
        }
        let record = self.lock().clone();
        Ok((self.records.load(Ordering::Acquire) == before).then_some(record))
    }

    /// Wraps `cudaEventQuery`: whether the event is reached.
    ///
    /// # Errors
    /// As [`Event::wait`], but for the timeout.
    pub fn query(&self) -> Result<bool> {
        const OPERATION: &str = "Event::query";
        self.device.ready(OPERATION)?;
        let Some(record) = self.reached()? else { return Ok(false) };
        match record.origins.judge(OPERATION) {
            Err(_) if record.origins.linger() => Ok(false),
            judged => record.told(judged).map(|()| true),
        }
    }

    /// Wraps `cudaEventQuery`: whether the device is done with what comes before the event, well or not.
    fn is_reached(&self) -> Result<bool> {
        self.device.ready("cudaEventQuery")?;
        // SAFETY: the handle is alive.
        undisturbing(|| check_ready(self.device.ordinal(), "cudaEventQuery", unsafe { sys::cudaEventQuery(self.raw) }))
    }

    /// Wraps `cudaEventQuery`: waits until the event is reached, but no longer than `timeout`.
    ///
    /// It covers what a wait for the stream would have covered when the event was recorded, and says each time it is
    /// asked where an operation of a communicator has failed there. That counts as a wait for the stream: events that are
    /// recorded there later say so no more once a communicator that is well has enqueued something.
    ///
    /// # Errors
    /// [`Error::Timeout`]; why an operation of a communicator has failed, such as [`Error::Aborted`]; what CUDA says,
    /// failures of earlier work on the device among others.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.wait_for("Event::wait", timeout)
    }

    /// The wait of `operation`.
    fn wait_for(&self, operation: &'static str, timeout: Duration) -> Result<()> {
        self.device.ready(operation)?;
        let what = || format!("an event of {}{}", self.device, self.lock().origins.pending());
        let mut record = Record::default();
        let reached = || Ok(self.reached()?.map(|of_it| record = of_it).is_some());
        let deadline = Deadline::after(timeout);
        let look = || {
            let origins = self.lock().origins.clone();
            origins.look_around();
        };
        if let Err(error) = deadline.poll_and_look(operation, what, look, reached) {
            let record = self.lock().clone();
            record.tell(true);
            return Err(error);
        }
        record.judge(operation, &deadline)
    }

    /// Wraps `cudaEventQuery`: waits until the event is reached, but no longer than the default timeout.
    ///
    /// # Errors
    /// As [`Event::wait`].
    pub fn synchronize(&self) -> Result<()> {
        self.wait_for("Event::synchronize", default_timeout())
    }

    /// Wraps `cudaEventElapsedTime`: the time from `start` to this event, to about half a microsecond.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for events of different devices, or made without timing; what CUDA says, for events
    /// that were not recorded or are not reached yet.
    pub fn elapsed_since(&self, start: &Self) -> Result<Duration> {
        const OPERATION: &str = "Event::elapsed_since";
        if !self.timing || !start.timing {
            return Err(Error::argument(OPERATION, "events", "two made by Event::timing", "one without timing"));
        }
        if self.device != start.device {
            return Err(Error::argument(OPERATION, "device of the start", self.device, start.device));
        }
        self.device.ready(OPERATION)?;
        let mut ms = 0.0;
        // SAFETY: both handles are alive; writes one float to the address given.
        let code = unsafe { sys::cudaEventElapsedTime(&raw mut ms, start.raw, self.raw) };
        check_on(self.device.ordinal(), "cudaEventElapsedTime", code)?;
        Ok(Duration::try_from_secs_f64(f64::from(ms) / 1e3).unwrap_or_default())
    }

    /// The `cudaEvent_t`. It lives as long as this value.
    ///
    /// Where others record it, waits of this crate know nothing of what they cover; see [`Stream::as_raw`].
    pub fn as_raw(&self) -> sys::cudaEvent_t {
        self.shared.store(true, Ordering::Relaxed);
        self.raw
    }
}

impl Stream {
    /// Wraps `cudaStreamWaitEvent`: work that is enqueued here later comes after `event`, as it was recorded last.
    /// Waits for this stream cover what the event covers, then, but for what had failed before a communicator was made that
    /// works here.
    ///
    /// # Errors
    /// [`Error::Timeout`] where too much is on its way; what CUDA says.
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        const OPERATION: &str = "Stream::wait_event";
        self.room_for_one(OPERATION, default_timeout())?;
        if event.shared.load(Ordering::Relaxed) {
            // Where it was recorded in a capture, this stream becomes a part of that.
            self.in_flight().expose();
        }
        let origins = event.last_record(OPERATION, || {
            // SAFETY: both handles are alive; they may be of different devices.
            let code = unsafe { sys::cudaStreamWaitEvent(self.raw(), event.raw, 0) };
            self.count(ENTRY);
            check_on(self.device().ordinal(), "cudaStreamWaitEvent", code)
        })?;
        self.history().follow(&origins);
        Ok(())
    }

    /// Wraps `cudaEventRecord`: an event that is reached when the work is done that is on the stream now.
    ///
    /// # Errors
    /// As [`Event::record`].
    pub fn record(&self) -> Result<Event> {
        const OPERATION: &str = "Stream::record";
        let event = Event::make(OPERATION, self.device(), false)?;
        event.record_for(OPERATION, self)?;
        Ok(event)
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event").field("device", &self.device).field("timing", &self.timing).finish_non_exhaustive()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.ours && !in_host_function() {
            // SAFETY: the handle came from cudaEventCreateWithFlags and is used no more. CUDA frees the event when it
            // is reached.
            let _ = check("cudaEventDestroy", unsafe { sys::cudaEventDestroy(self.raw) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It may stand for a point in a capture, which the stream becomes a part of then.
    #[test]
    fn a_stream_that_waits_for_an_event_of_others_is_asked_from_then_on() {
        let device = Device::new(0).unwrap();
        let (stream, event) = (Stream::new(device).unwrap(), Event::new(device).unwrap());
        stream.wait_event(&event).unwrap();
        assert!(!stream.in_flight().is_exposed());
        event.as_raw();
        stream.wait_event(&event).unwrap();
        assert!(stream.in_flight().is_exposed());
    }
}

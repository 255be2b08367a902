//! What an event is to CUDA, and what it stands for; futures keep it when the event is gone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::in_flight::ENTRY;
use super::stream;
use super::stream::Stream;
use super::wait::Ask;
use crate::cuda::devices::check::{check, check_on, check_ready};
use crate::cuda::devices::device::Device;
use crate::cuda::devices::settle::undisturbing;
use crate::cuda::devices::thread::is_off_limits;
use crate::cuda::works::work::Origins;
use crate::deadline::{Deadline, default_timeout};
use crate::error::{Error, Result};
use crate::lock::{Mutex, MutexGuard};
use crate::sys;

/// An event of CUDA.
pub(super) struct Point {
    pub(super) raw: sys::cudaEvent_t,
    pub(super) device: Device,
    /// Whether it may take the time: of those that others made only CUDA knows.
    pub(super) timing: bool,
    /// Whether it is destroyed with this value.
    ours: AtomicBool,
    /// Whether others have the handle, and may record it on a stream that is being captured.
    pub(super) shared: AtomicBool,
    /// Held by who records it or has a stream wait for it, so that CUDA and `last` mean the same record.
    turn: Mutex<()>,
    /// Twice how often it was recorded; odd while it is. Who asks the device holds nothing: it compares this before and after.
    records: AtomicU64,
    last: Mutex<Record>,
}

/// What an event stands for, as it was recorded last.
#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    /// The operations of communicators that come before it.
    pub(super) origins: Origins,
    /// Where it was recorded; unknown where there are no origins.
    stream: Weak<stream::Inner>,
}

impl Record {
    fn of(stream: &Stream) -> Self {
        let origins = stream.history().origins();
        let stream = if origins.is_empty() { Weak::new() } else { stream.downgrade() };
        Self { origins, stream }
    }

    /// What was found, of which the stream counts as told.
    pub(super) fn told(&self, judged: Result<()>) -> Result<()> {
        judged.inspect_err(|_| self.tell(false))
    }

    /// A wait for it is one for its stream, to which it has told what has failed, or takes too long.
    fn tell(&self, late: bool) {
        if let Some(stream) = Stream::upgrade(&self.stream) {
            stream.history().tell(&self.origins, late);
        }
    }

    /// A wait for it has ended with `error`. If that was too late, no drop waits as long again for its stream.
    fn give_up(&self, error: &Error) {
        if let Some(stream) = Stream::upgrade(&self.stream) {
            stream.give_up_all(error);
        }
        self.origins.give_up(error);
    }
}

// SAFETY: the CUDA runtime allows events to be used from any thread, and from several at a time.
unsafe impl Send for Point {}
// SAFETY: as above.
unsafe impl Sync for Point {}

impl Point {
    /// An event of `device`, which is destroyed with this where it is `ours`; where it is not, others have the handle.
    pub(super) fn new(raw: sys::cudaEvent_t, device: Device, timing: bool, ours: bool) -> Self {
        let (turn, records, last) = (Mutex::new(()), AtomicU64::new(0), Mutex::default());
        Self { raw, device, timing, ours: AtomicBool::new(ours), shared: AtomicBool::new(!ours), turn, records, last }
    }

    /// Whoever has the handle destroys it.
    pub(super) fn give_away(&self) {
        self.ours.store(false, Ordering::Relaxed);
    }

    /// The wait of `operation`.
    pub(super) fn wait(self: &Arc<Self>, operation: &'static str, timeout: Duration) -> Result<PointWait> {
        self.device.ready(operation)?;
        Ok(PointWait { operation, point: Arc::clone(self), deadline: Deadline::after(timeout), reached: None })
    }

    /// The record of `operation`.
    pub(super) fn record(&self, operation: &'static str, stream: &Stream) -> Result<()> {
        if stream.device() != self.device {
            return Err(Error::argument(operation, "stream", self.device, stream.device()));
        }
        self.device.ready(operation)?;
        stream.room_for_one(operation, default_timeout)?;
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
    pub(super) fn last_record(&self, operation: &'static str, call: impl FnOnce() -> Result<()>) -> Result<Origins> {
        let _turn = self.turn(operation)?;
        call()?;
        Ok(self.lock().origins.clone())
    }

    /// Waits for other threads that record the event, or have a stream wait for it.
    fn turn(&self, operation: &'static str) -> Result<MutexGuard<'_, ()>> {
        let take = || self.turn.try_lock();
        if let Some(turn) = take() {
            return Ok(turn);
        }
        let deadline = Deadline::after(default_timeout());
        deadline.until(|| Ok(take()))?.ok_or_else(|| {
            deadline.error(operation, "another thread that records this event, or has a stream wait for it")
        })
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.last.lock()
    }

    /// If it is reached: what it stands for. Not while it is recorded: who records it
    /// makes of it an event that is not reached yet.
    pub(super) fn reached(&self) -> Result<Option<Record>> {
        let before = self.records.load(Ordering::Acquire);
        if before % 2 == 1 || !self.is_reached()? {
            return Ok(None);
        }
        let record = self.lock().clone();
        Ok((self.records.load(Ordering::Acquire) == before).then_some(record))
    }

    /// Wraps `cudaEventQuery`: whether the device is done with what comes before the event, well or not.
    fn is_reached(&self) -> Result<bool> {
        self.device.ready("cudaEventQuery")?;
        // SAFETY: the handle is alive.
        undisturbing(|| check_ready(self.device.ordinal(), "cudaEventQuery", unsafe { sys::cudaEventQuery(self.raw) }))
    }
}

/// A wait for an event, as it was recorded last.
#[derive(Debug)]
pub(super) struct PointWait {
    operation: &'static str,
    point: Arc<Point>,
    deadline: Deadline,
    /// What it stood for when it was found reached, and what has failed of that.
    reached: Option<(Record, Result<()>)>,
}

impl Ask for PointWait {
    fn ask(&mut self) -> Option<Result<()>> {
        if self.reached.is_none() {
            match self.point.reached() {
                Ok(Some(record)) => {
                    let judged = record.origins.judge(self.operation);
                    self.reached = Some((record, judged));
                }
                Ok(None) if !self.deadline.expired() => {
                    if self.deadline.has_lasted() {
                        let origins = self.point.lock().origins.clone();
                        origins.look_around();
                    }
                    return None;
                }
                asked => {
                    let record = self.point.lock().clone();
                    record.tell(true);
                    let failed = asked.and_then(|_| Err(self.late(&record)));
                    return Some(failed.inspect_err(|error| record.give_up(error)));
                }
            }
        }
        let (record, judged) = self.reached.as_ref()?;
        // A host function keeps its stream waiting, and so perhaps what it would wait for.
        if judged.is_err() && record.origins.linger() && !self.deadline.expired() && !is_off_limits() {
            return None;
        }
        Some(record.told(judged.clone()))
    }
}

impl PointWait {
    #[cold]
    fn late(&self, record: &Record) -> Error {
        let detail = format!("an event of {}{}", self.point.device, record.origins.pending());
        self.deadline.error(self.operation, detail).between(record.origins.between())
    }
}

impl std::fmt::Debug for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {}", self.raw, self.device)
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        if self.ours.load(Ordering::Relaxed) && !is_off_limits() {
            // SAFETY: the handle came from cudaEventCreateWithFlags and is used no more. CUDA frees the event when it
            // is reached.
            let _ = check("cudaEventDestroy", unsafe { sys::cudaEventDestroy(self.raw) });
        }
    }
}

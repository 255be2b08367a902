//! Events: places in the order of a stream, and times.
//!
//! Recording an event that takes no time enqueues nothing: the stream's own count of finished work says when it is done. In a
//! capture an event is a place in the order of that, which nothing ever passes.

use super::capture::{self, Mark};
use super::device::Device;
use super::handle::Registry;
use super::line::Ticket;
use super::stream::Stream;
use crate::cuda::core::queue::Task;
use crate::lock::Mutex;
use crate::report;
use crate::sys::{cudaError, cudaEvent_t};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

pub(crate) static EVENTS: Registry<Event> = Registry::new(0x52);

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub device: &'static Device,
    timing: bool,
    record: Mutex<Option<Record>>,
}

/// What the last cudaEventRecord caught.
#[derive(Debug, Clone)]
enum Record {
    /// A place in the order of a stream.
    Live { ticket: Ticket, time: Option<Arc<OnceLock<Instant>>> },
    /// A place in a capture.
    Captured(Mark),
}

/// The event behind a handle.
pub(crate) fn find(handle: cudaEvent_t) -> Result<Arc<Event>, cudaError> {
    EVENTS.get(handle).ok_or_else(|| {
        report::violation(format!("{handle:p} is no event: it was destroyed, or never made"));
        cudaError::cudaErrorInvalidResourceHandle
    })
}

impl Event {
    /// An event of `device` that was never recorded.
    pub fn new(device: &'static Device, timing: bool) -> Self {
        Self { device, timing, record: Mutex::default() }
    }

    /// Catches what is enqueued on `stream` by now. Earlier records are forgotten, but who waits for one keeps waiting for
    /// that one.
    pub fn record(&self, stream: &Arc<Stream>) -> Result<(), cudaError> {
        if stream.device.ordinal != self.device.ordinal {
            return Err(cudaError::cudaErrorInvalidResourceHandle);
        }
        stream.device.check()?;
        // Held across the enqueue, so that of two records the one that came last on the stream is the one that is kept.
        let mut record = self.record.lock();
        if let Some(mark) = capture::mark(&stream.line)? {
            *record = Some(Record::Captured(mark));
            return Ok(());
        }
        let ticket = stream.mark()?;
        *record = Some(if self.timing {
            let time = Arc::new(OnceLock::new());
            if ticket.done() {
                let _ = time.set(Instant::now());
                Record::Live { ticket, time: Some(time) }
            } else {
                Record::Live { ticket: stream.push(Task::Stamp(time.clone()))?, time: Some(time) }
            }
        } else {
            Record::Live { ticket, time: None }
        });
        Ok(())
    }

    /// Whether the work that the last record caught is done; so it is where there was none. Asking is potentially unsafe, and that of
    /// a place in a capture spoils it, whatever its mode is.
    pub fn query(&self) -> Result<(), cudaError> {
        let record = self.record.lock();
        if let Some(Record::Captured(mark)) = &*record {
            return Err(capture::asked(mark, true));
        }
        capture::check()?;
        self.device.check()?;
        match &*record {
            Some(Record::Live { ticket, .. }) if !ticket.done() => Err(cudaError::cudaErrorNotReady),
            Some(Record::Live { ticket, .. }) => {
                ticket.see();
                // Work may have failed since the device was looked at, and all that came after it counts as done.
                self.device.check()
            }
            _ => Ok(()),
        }
    }

    /// Lets later work of `stream` wait for the last record, if there is one.
    pub fn hold(&self, stream: &Arc<Stream>) -> Result<(), cudaError> {
        stream.device.check()?;
        match self.record.lock().clone() {
            None => Ok(()),
            Some(Record::Captured(mark)) => capture::wait(&stream.line, &mark),
            Some(Record::Live { ticket, .. }) => {
                capture::isolate(&stream.line)?;
                stream.follow(ticket)
            }
        }
    }

    /// Milliseconds from the record of `start` to that of this event.
    pub fn since(&self, start: &Self) -> Result<f32, cudaError> {
        self.device.check()?;
        let unusable = cudaError::cudaErrorInvalidResourceHandle;
        if self.device.ordinal != start.device.ordinal {
            return Err(unusable);
        }
        // One after the other: both may be the same.
        let first = start.record.lock().clone().ok_or(unusable)?;
        let last = self.record.lock().clone().ok_or(unusable)?;
        let taken = |record| match record {
            Record::Live { ticket, time } => Ok((ticket, time.ok_or(unusable)?)),
            Record::Captured(mark) => Err(capture::asked(&mark, false)),
        };
        let ((first, first_time), (last, last_time)) = (taken(first)?, taken(last)?);
        if !first.done() || !last.done() {
            return Err(cudaError::cudaErrorNotReady);
        }
        let (Some(&from), Some(&to)) = (first_time.get(), last_time.get()) else {
            return Err(cudaError::cudaErrorNotReady);
        };
        [first, last].iter().for_each(Ticket::see);
        let forward = to.saturating_duration_since(from).as_secs_f64();
        let backward = from.saturating_duration_since(to).as_secs_f64();
        Ok(((forward - backward) * 1e3) as f32)
    }
}

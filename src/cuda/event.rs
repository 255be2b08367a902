//! Events: points in the work of streams.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::check::{check, check_on, check_ready};
use super::device::{Device, in_host_function};
use super::pool;
use super::stream::Stream;
use super::work::Origins;
use crate::deadline::{Deadline, default_timeout};
use crate::error::{Error, Result};
use crate::sys;

/// A point in the work of a stream, that the host and other streams can wait for.
///
/// An event that was never recorded counts as reached.
pub struct Event {
    raw: sys::cudaEvent_t,
    device: Device,
    timing: bool,
    /// The operations of communicators that come before it, as it was recorded last.
    origins: Mutex<Origins>,
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
        let raw = pool::create_event(device, sys::cudaEventDisableTiming)?;
        Ok(Self { raw, device, timing: false, origins: Mutex::default() })
    }

    /// Wraps `cudaEventCreateWithFlags`: an event that also takes the time, for [`Event::elapsed_since`].
    ///
    /// # Errors
    /// What CUDA says.
    pub fn timing(device: Device) -> Result<Self> {
        let raw = pool::create_event(device, sys::cudaEventDefault)?;
        Ok(Self { raw, device, timing: true, origins: Mutex::default() })
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
        if stream.device() != self.device {
            return Err(Error::argument("Event::record", "stream", self.device, stream.device()));
        }
        self.device.ready()?;
        // Before the event: what is enqueued in between need not be covered by it.
        let origins = stream.history().origins();
        stream.enqueue("Event::record", default_timeout(), || {
            // SAFETY: both handles are alive, and of one device.
            check_on(self.device.ordinal(), "cudaEventRecord", unsafe { sys::cudaEventRecord(self.raw, stream.raw()) })
        })?;
        *self.origins.lock().unwrap_or_else(PoisonError::into_inner) = origins;
        Ok(())
    }

    /// The operations of communicators that come before it.
    pub(crate) fn origins(&self) -> Origins {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Wraps `cudaEventQuery`: whether the event is reached.
    ///
    /// # Errors
    /// As [`Event::wait`], but for the timeout.
    pub fn query(&self) -> Result<bool> {
        let origins = self.origins();
        if !self.is_reached()? {
            return Ok(false);
        }
        origins.judge("Event::query")?;
        Ok(true)
    }

    /// Wraps `cudaEventQuery`: whether the device is done with what comes before the event, well or not.
    pub(crate) fn is_reached(&self) -> Result<bool> {
        self.device.ready()?;
        // SAFETY: the handle is alive.
        check_ready(self.device.ordinal(), "cudaEventQuery", unsafe { sys::cudaEventQuery(self.raw) })
    }

    /// Wraps `cudaEventQuery`: waits until the event is reached, but no longer than `timeout`.
    ///
    /// It covers what a wait for the stream would have covered when the event was recorded, and says each time it is
    /// asked where an operation of a communicator has failed there.
    ///
    /// # Errors
    /// [`Error::Timeout`]; why an operation of a communicator has failed, such as [`Error::Aborted`]; what CUDA says,
    /// failures of earlier work on the device among others.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        const OPERATION: &str = "Event::wait";
        let origins = self.origins();
        let what = || format!("an event of {}{}", self.device, origins.pending());
        Deadline::after(timeout).poll(OPERATION, what, || self.is_reached())?;
        origins.judge(OPERATION)
    }

    /// Wraps `cudaEventQuery`: waits until the event is reached, but no longer than the default timeout.
    ///
    /// # Errors
    /// As [`Event::wait`].
    pub fn synchronize(&self) -> Result<()> {
        self.wait(default_timeout())
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
        self.device.ready()?;
        let mut ms = 0.0;
        // SAFETY: both handles are alive; writes one float to the address given.
        let code = unsafe { sys::cudaEventElapsedTime(&raw mut ms, start.raw, self.raw) };
        check_on(self.device.ordinal(), "cudaEventElapsedTime", code)?;
        Ok(Duration::try_from_secs_f64(f64::from(ms) / 1e3).unwrap_or_default())
    }

    /// The `cudaEvent_t`. It lives as long as this value.
    pub fn as_raw(&self) -> sys::cudaEvent_t {
        self.raw
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event").field("device", &self.device).field("timing", &self.timing).finish_non_exhaustive()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !in_host_function() {
            // SAFETY: the handle came from cudaEventCreateWithFlags and is used no more. CUDA frees the event when it
            // is reached.
            let _ = check("cudaEventDestroy", unsafe { sys::cudaEventDestroy(self.raw) });
        }
    }
}

//! Events: points in the work of streams.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::done::Done;
use super::in_flight::ENTRY;
use super::point::Point;
use super::stream::Stream;
use super::wait::Ask;
use crate::cuda::devices::check::check_on;
use crate::cuda::devices::device::Device;
use crate::cuda::devices::pool;
use crate::deadline::default_timeout;
use crate::error::{Error, Result};
use crate::sys;

/// A point in the work of a stream, that the host and other streams can wait for.
///
/// An event that was never recorded counts as reached.
///
/// ```
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let stream = Stream::new(Device::new(0)?)?;
/// let other = Stream::new(stream.device())?;
/// let mut x = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
/// let zeros = stream.record()?;
/// // What is enqueued on the other stream comes after the zeros; the host goes on.
/// other.wait_event(&zeros)?;
/// x.fill(&other, 1.0)?;
/// zeros.synchronize()?;
/// assert!(zeros.query()?);
/// assert_eq!(zeros.device(), stream.device());
/// # Ok(())
/// # }
/// ```
pub struct Event(Arc<Point>);

impl Event {
    /// Wraps `cudaEventCreateWithFlags`: an event for waiting, without a time.
    ///
    /// ```
    /// # use gpucomm::{Device, Event, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let event = Event::new(stream.device())?;
    /// // One event may be recorded again and again: waits are for the last time.
    /// for _ in 0..3 {
    ///     event.record(&stream)?;
    /// }
    /// event.synchronize()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "cudaEventCreateWithFlags")]
    pub fn new(device: Device) -> Result<Self> {
        Self::make("Event::new", device, false)
    }

    /// Wraps `cudaEventCreateWithFlags`: an event that also takes the time, for [`Event::elapsed_since`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Event, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let (start, end) = (Event::timing(stream.device())?, Event::timing(stream.device())?);
    /// let mut x = DeviceBuffer::<f32>::zeroed(&stream, 1 << 20)?;
    /// start.record(&stream)?;
    /// x.fill(&stream, 1.0)?;
    /// end.record(&stream)?;
    /// end.synchronize()?;
    /// println!("the fill took {:?}", end.elapsed_since(&start)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "cudaEventCreateWithFlags")]
    pub fn timing(device: Device) -> Result<Self> {
        Self::make("Event::timing", device, true)
    }

    pub(crate) fn make(operation: &'static str, device: Device, timing: bool) -> Result<Self> {
        let flags = if timing { sys::cudaEventDefault } else { sys::cudaEventDisableTiming };
        let raw = pool::create_event(operation, device, flags)?;
        Ok(Self(Arc::new(Point::new(raw, device, timing, true))))
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
    /// `raw` is an event of `device`, and stays alive as long as the returned value, and the futures that are made of it until they are
    /// ready or dropped. No other value is made of it meanwhile.
    pub unsafe fn from_raw(device: Device, raw: sys::cudaEvent_t) -> Self {
        Self(Arc::new(Point::new(raw, device, true, false)))
    }

    /// The `cudaEvent_t`, which the caller destroys, not before the futures that were made of it are ready or dropped.
    pub fn into_raw(self) -> sys::cudaEvent_t {
        self.0.give_away();
        self.0.raw
    }

    /// The device it belongs to.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Wraps `cudaEventRecord`: the event is reached when the work is done that is on `stream` now.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Event, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let event = Event::new(stream.device())?;
    /// let x = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
    /// event.record(&stream)?;
    /// // Whatever comes now is not waited for.
    /// let y = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
    /// event.synchronize()?;
    /// # drop((x, y));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a stream of another device; [`Error::Timeout`] where too much is on its way there;
    /// what CUDA says.
    #[doc(alias = "cudaEventRecord")]
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.0.record("Event::record", stream)
    }

    /// Wraps `cudaEventQuery`: whether the event is reached.
    ///
    /// ```
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let event = stream.record()?;
    /// while !event.query()? {
    ///     std::thread::yield_now();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Event::synchronize_timeout`], but for the timeout.
    #[doc(alias = "cudaEventQuery")]
    pub fn query(&self) -> Result<bool> {
        const OPERATION: &str = "Event::query";
        self.0.device.ready(OPERATION)?;
        let Some(record) = self.0.reached()? else { return Ok(false) };
        match record.origins.judge(OPERATION) {
            Err(_) if record.origins.linger() => Ok(false),
            judged => record.told(judged).map(|()| true),
        }
    }

    /// Wraps `cudaEventQuery`: waits until the event is reached, but no longer than `timeout`.
    ///
    /// It covers what a wait for the stream would have covered when the event was recorded, and says each time it is
    /// asked where an operation of a communicator has failed there. That counts as a wait for the stream: events that are
    /// recorded there later say so no more once a communicator that is well has enqueued something.
    ///
    /// ```
    /// # use gpucomm::{Device, Error, Stream};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let event = stream.record()?;
    /// match event.synchronize_timeout(Duration::from_secs(10)) {
    ///     Ok(()) => println!("done"),
    ///     Err(Error::Timeout { .. }) => println!("the stream is late"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`]; why an operation of a communicator has failed, such as [`Error::Aborted`]; what CUDA says,
    /// failures of earlier work on the device among others.
    #[doc(alias = "cudaEventQuery")]
    pub fn synchronize_timeout(&self, timeout: Duration) -> Result<()> {
        self.0.wait("Event::synchronize_timeout", timeout)?.block()
    }

    /// Wraps `cudaEventQuery`: waits until the event is reached, but no longer than the default timeout.
    ///
    /// # Errors
    /// As [`Event::synchronize_timeout`].
    #[doc(alias = "cudaEventQuery")]
    pub fn synchronize(&self) -> Result<()> {
        self.0.wait("Event::synchronize", default_timeout())?.block()
    }

    /// Wraps `cudaEventQuery`: a future of the moment when the event is reached, for the default timeout; as [`Stream::done`], which says
    /// more.
    ///
    /// ```
    /// # use gpucomm::{Device, Event, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// # use std::task::{Context, Poll, Waker};
    /// async fn both(a: &Event, b: &Event) -> gpucomm::Result<()> {
    ///     a.done().await?;
    ///     b.done().await
    /// }
    /// # let (a, b) = (stream.record()?, stream.record()?);
    /// # let mut future = std::pin::pin!(both(&a, &b));
    /// # while let Poll::Pending = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {}
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The future ends with those of [`Event::synchronize_timeout`].
    #[doc(alias = "cudaEventQuery")]
    pub fn done(&self) -> Done {
        Done::of(self.0.wait("Event::done", default_timeout()))
    }

    /// Wraps `cudaEventQuery`: as [`Event::done`], with a timeout that begins with this call.
    ///
    /// ```
    /// # use gpucomm::{Device, Event, Stream};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// # use std::task::{Context, Poll, Waker};
    /// async fn soon(event: &Event) -> gpucomm::Result<()> {
    ///     event.done_timeout(Duration::from_secs(5)).await
    /// }
    /// # let event = stream.record()?;
    /// # let mut future = std::pin::pin!(soon(&event));
    /// # while let Poll::Pending = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {}
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "cudaEventQuery")]
    pub fn done_timeout(&self, timeout: Duration) -> Done {
        Done::of(self.0.wait("Event::done_timeout", timeout))
    }

    /// Wraps `cudaEventElapsedTime`: the time from `start` to this event, to about half a microsecond.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for events of different devices, or made without timing; what CUDA says, for events
    /// that were not recorded or are not reached yet.
    #[doc(alias = "cudaEventElapsedTime")]
    pub fn elapsed_since(&self, start: &Self) -> Result<Duration> {
        const OPERATION: &str = "Event::elapsed_since";
        if !self.0.timing || !start.0.timing {
            return Err(Error::argument(OPERATION, "events", "two made by Event::timing", "one without timing"));
        }
        if self.device() != start.device() {
            return Err(Error::argument(OPERATION, "device of the start", self.device(), start.device()));
        }
        self.device().ready(OPERATION)?;
        let mut ms = 0.0;
        // SAFETY: both handles are alive; writes one float to the address given.
        let code = unsafe { sys::cudaEventElapsedTime(&raw mut ms, start.0.raw, self.0.raw) };
        check_on(self.device().ordinal(), "cudaEventElapsedTime", code)?;
        Ok(Duration::try_from_secs_f64(f64::from(ms) / 1e3).unwrap_or_default())
    }

    /// The `cudaEvent_t`. It lives as long as this value.
    ///
    /// Where others record it, waits of this crate know nothing of what they cover; see [`Stream::as_raw`].
    ///
    /// ```
    /// # use gpucomm::{Device, Stream};
    /// # use gpucomm::sys;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let event = stream.record()?;
    /// event.synchronize()?;
    /// // SAFETY: the event is alive.
    /// assert_eq!(unsafe { sys::cudaEventQuery(event.as_raw()) }, sys::cudaError::cudaSuccess);
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_raw(&self) -> sys::cudaEvent_t {
        self.0.shared.store(true, Ordering::Relaxed);
        self.0.raw
    }
}

impl Stream {
    /// Wraps `cudaStreamWaitEvent`: work that is enqueued here later comes after `event`, as it was recorded last.
    /// Waits for this stream cover what the event covers, then, but for what had failed before a communicator was made that
    /// works here.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let copies = Stream::new(stream.device())?;
    /// let mut x = DeviceBuffer::<f32>::zeroed(&copies, 1000)?;
    /// copies.wait_event(&stream.record()?)?;
    /// // Comes after all that was on `stream`, whether that used `x` or not.
    /// x.fill(&copies, 1.0)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] where too much is on its way; what CUDA says.
    #[doc(alias = "cudaStreamWaitEvent")]
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        const OPERATION: &str = "Stream::wait_event";
        self.room_for_one(OPERATION, default_timeout)?;
        let event = &*event.0;
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
        if event.device != self.device() {
            self.in_flight().note_other_work();
        }
        self.history().follow(&origins);
        Ok(())
    }

    /// Wraps `cudaEventRecord`: an event that is reached when the work is done that is on the stream now.
    ///
    /// ```
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let event = stream.record()?;
    /// event.synchronize()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Event::record`].
    #[doc(alias = "cudaEventRecord")]
    pub fn record(&self) -> Result<Event> {
        const OPERATION: &str = "Stream::record";
        let event = Event::make(OPERATION, self.device(), false)?;
        event.0.record(OPERATION, self)?;
        Ok(event)
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event").field("device", &self.0.device).field("timing", &self.0.timing).finish_non_exhaustive()
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

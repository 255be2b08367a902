//! Waiting for a stream: what the device has done, and what has failed there.

use std::time::Duration;

use super::later;
use super::mark::Mark;
use super::stream::Stream;
use crate::cuda::devices::check::check_ready;
use crate::cuda::devices::settle::undisturbing;
use crate::cuda::works::work::Origins;
use crate::deadline::{Deadline, default_timeout};
use crate::error::Result;
use crate::sys;

impl Stream {
    /// Wraps `cudaStreamQuery`: whether all work is done. Not while a failed communicator is still being stopped.
    ///
    /// # Errors
    /// As [`Stream::wait`], but for the timeout.
    pub fn query(&self) -> Result<bool> {
        const OPERATION: &str = "Stream::query";
        self.ready(OPERATION)?;
        let origins = self.history().origins();
        if !self.is_idle()? {
            return Ok(false);
        }
        match origins.judge(OPERATION) {
            Err(_) if origins.linger() => Ok(false),
            judged => self.tell(&origins, judged).map(|()| true),
        }
    }

    /// Wraps `cudaStreamQuery`: whether the device is done with all work, well or not. Not known of what is being captured.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        self.device().ready("cudaStreamQuery")?;
        if self.is_captured() {
            return Ok(false);
        }
        let position = self.in_flight().position();
        let device = self.device().ordinal();
        // SAFETY: the handle is alive.
        let done =
            undisturbing(|| check_ready(device, "cudaStreamQuery", unsafe { sys::cudaStreamQuery(self.raw()) }))?;
        if done {
            self.in_flight().see(position);
            later::retry(self);
        }
        Ok(done)
    }

    /// Wraps `cudaEventQuery`: waits until the work is done that is on the stream now, but no longer than the default
    /// timeout.
    ///
    /// # Errors
    /// As [`Stream::wait`].
    pub fn synchronize(&self) -> Result<()> {
        self.wait_until("Stream::synchronize", &Deadline::after(default_timeout()))
    }

    /// Wraps `cudaEventQuery`: waits until the work is done that is on the stream now, but no longer than `timeout`.
    ///
    /// That covers the operations of communicators that were enqueued here, those whose results were read here, and what
    /// [`Stream::wait_event`] made the stream wait for. Where one of them has failed or was aborted, every wait says so,
    /// until one has, and a communicator that is well has enqueued something more, or [`Stream::accept`] is called. A
    /// communicator that was made after a failure is not disturbed by it: it is told no more once that has enqueued something.
    ///
    /// # Errors
    /// [`Timeout`](crate::Error::Timeout); why an operation of a communicator has failed, such as [`Aborted`](crate::Error::Aborted);
    /// [`InvalidUsage`](crate::Error::InvalidUsage) where a host function of the stream has panicked since the last wait; what CUDA
    /// says, failures of earlier work on the device among others.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.wait_until("Stream::wait", &Deadline::after(timeout))
    }

    /// The wait of `operation`.
    pub(crate) fn wait_until(&self, operation: &'static str, deadline: &Deadline) -> Result<()> {
        self.ready(operation)?;
        let origins = self.history().origins();
        if !self.is_idle()? {
            // What other threads enqueue from now on is not waited for.
            let mark = self.in_flight().mark_all(self.queue())?;
            let what = || format!("work on a stream of {}{}", self.device(), origins.pending());
            let done = || mark.as_ref().map_or_else(|| self.is_idle(), |mark| self.has_reached(mark));
            let look = || origins.look_around();
            deadline.poll_and_look(operation, what, look, done).inspect_err(|_| self.history().tell(&origins, true))?;
        }
        self.judge(operation, &origins, deadline)
    }

    /// Whether the stream has come to `mark`, a point of its own.
    pub(crate) fn has_reached(&self, mark: &Mark) -> Result<bool> {
        let reached = mark.reached()?;
        if reached {
            self.in_flight().see(mark.position());
        }
        Ok(reached)
    }

    /// Takes what is on the stream as it is: failures that are known of until now are reported by waits for it no more.
    /// What failed operations would have written stays marked; see [`DeviceBuffer::accept`](crate::cuda::DeviceBuffer::accept).
    pub fn accept(&self) {
        self.history().accept();
    }

    /// What a wait of `operation` reports when the device is done: failures of `origins`, and of host functions.
    pub(crate) fn judge(&self, operation: &'static str, origins: &Origins, deadline: &Deadline) -> Result<()> {
        self.tell(origins, origins.judge_within(operation, deadline))
    }

    fn tell(&self, origins: &Origins, judged: Result<()>) -> Result<()> {
        judged.inspect_err(|_| self.history().tell(origins, false))?;
        self.panics().tell()
    }
}

//! Waiting for a stream: what the device has done, and what has failed there.

use std::time::Duration;

use super::later;
use super::mark::Mark;
use super::stream::Stream;
use crate::cuda::devices::check::check_ready;
use crate::cuda::devices::settle::undisturbing;
use crate::cuda::devices::thread::is_off_limits;
use crate::cuda::works::work::Origins;
use crate::deadline::{Deadline, backoff, default_timeout};
use crate::error::{Error, Result};
use crate::{sys, trace};

impl Stream {
    /// Wraps `cudaStreamQuery`: whether all work is done. Not while a failed communicator is still being stopped.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
    /// while !stream.query()? {
    ///     // Something useful for the host.
    ///     std::thread::yield_now();
    /// }
    /// # drop(x);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Stream::synchronize_timeout`], but for the timeout.
    #[doc(alias = "cudaStreamQuery")]
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

    /// Wraps `cudaStreamQuery`: whether the device is done with all work, well or not. Not known of what is being captured. Frees what was
    /// used here, if it is.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        let done = self.is_drained()?;
        if done {
            later::retry(self);
        }
        Ok(done)
    }

    /// The same, and frees nothing.
    pub(crate) fn is_drained(&self) -> Result<bool> {
        self.device().ready("cudaStreamQuery")?;
        if self.is_captured() {
            return Ok(false);
        }
        let position = self.in_flight().position();
        let device = self.device().ordinal();
        let _current = self.queue().hold_device("cudaStreamQuery")?;
        // SAFETY: the handle is alive.
        let done =
            undisturbing(|| check_ready(device, "cudaStreamQuery", unsafe { sys::cudaStreamQuery(self.raw()) }))?;
        if done {
            self.in_flight().see(position);
        }
        Ok(done)
    }

    /// Wraps `cudaEventQuery`: waits until the work is done that is on the stream now, but no longer than the default
    /// timeout.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
    /// x.fill(&stream, 1.0)?;
    /// stream.synchronize()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Stream::synchronize_timeout`].
    #[doc(alias = "cudaEventQuery")]
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
    /// ```
    /// # use gpucomm::{Device, Error, Stream};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// match stream.synchronize_timeout(Duration::from_secs(10)) {
    ///     Ok(()) => println!("all is done"),
    ///     Err(Error::Timeout { .. }) => println!("something hangs"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Timeout`](crate::Error::Timeout); why an operation of a communicator has failed, such as [`Aborted`](crate::Error::Aborted);
    /// [`InvalidUsage`](crate::Error::InvalidUsage) where a host function of the stream has panicked since the last wait; what CUDA
    /// says, failures of earlier work on the device among others.
    #[doc(alias = "cudaEventQuery")]
    pub fn synchronize_timeout(&self, timeout: Duration) -> Result<()> {
        self.wait_until("Stream::synchronize_timeout", &Deadline::after(timeout))
    }

    /// The wait of `operation`.
    pub(crate) fn wait_until(&self, operation: &'static str, deadline: &Deadline) -> Result<()> {
        let wait = Wait::begin(operation, self, *deadline)?;
        let _span = trace::wait(operation, self.device().ordinal(), self.serial());
        wait.block()
    }

    /// The same, which ends where `unless` says why; asked each time after a look whether it is over.
    #[cfg(feature = "nvshmem")]
    pub(crate) fn wait_unless(
        &self,
        operation: &'static str,
        deadline: &Deadline,
        unless: impl Fn() -> Option<Error>,
    ) -> Result<()> {
        let mut wait = Wait::begin(operation, self, *deadline)?;
        let _span = trace::wait(operation, self.device().ordinal(), self.serial());
        let mut round = 0;
        loop {
            if let Some(result) = wait.ask() {
                return result;
            }
            if let Some(error) = unless() {
                self.history().tell(&wait.origins, true);
                self.give_up(wait.mark.as_ref(), &error);
                wait.origins.give_up(&error);
                return Err(error);
            }
            backoff(round);
            round = round.saturating_add(1);
        }
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
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let streams: Vec<_> = clique.ranks().iter().map(|rank| Stream::new(rank.device())).collect::<gpucomm::Result<_>>()?;
    /// clique.barrier_on_stream(&streams)?;
    /// clique.abort("it is over");
    /// // The barrier was not waited for, and so it has failed.
    /// assert!(streams[0].synchronize().is_err());
    /// streams[0].accept();
    /// streams[0].synchronize()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn accept(&self) {
        self.history().accept();
    }

    /// What a wait of `operation` reports when the device is done: failures of `origins`, and of host functions.
    pub(crate) fn judge(&self, operation: &'static str, origins: &Origins, deadline: &Deadline) -> Result<()> {
        self.tell(origins, origins.judge_within(operation, deadline))
    }

    /// What was found, of which the stream counts as told.
    fn tell(&self, origins: &Origins, judged: Result<()>) -> Result<()> {
        judged.inspect_err(|_| self.history().tell(origins, false))?;
        self.panics().tell()
    }
}

/// A wait that somebody asks again and again until it is over.
pub(crate) trait Ask: std::fmt::Debug + Send {
    /// What it comes to; `None` while it goes on. Never waits.
    fn ask(&mut self) -> Option<Result<()>>;

    /// Waits on this thread.
    fn block(mut self) -> Result<()>
    where
        Self: Sized,
    {
        let mut round = 0;
        loop {
            if let Some(result) = self.ask() {
                return result;
            }
            backoff(round);
            round = round.saturating_add(1);
        }
    }
}

/// A wait for what was on a stream when it began.
#[derive(Debug)]
pub(crate) struct Wait {
    operation: &'static str,
    stream: Stream,
    deadline: Deadline,
    origins: Origins,
    /// What other threads enqueue after it is not waited for.
    mark: Option<Mark>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The device is at it.
    OnDevice,
    /// The device is done; what has failed may still write.
    Failed(Error),
    Done,
}

impl Ask for Wait {
    fn ask(&mut self) -> Option<Result<()>> {
        if matches!(self.stage, Stage::OnDevice) {
            match self.has_come() {
                Ok(true) => self.stage = Stage::Done,
                Ok(false) if !self.deadline.expired() => {
                    if self.deadline.has_lasted() {
                        self.origins.look_around();
                    }
                    return None;
                }
                asked => {
                    self.stream.history().tell(&self.origins, true);
                    return Some(asked.and_then(|_| {
                        let late = self.late();
                        self.stream.give_up(self.mark.as_ref(), &late);
                        self.origins.give_up(&late);
                        Err(late)
                    }));
                }
            }
        }
        if matches!(self.stage, Stage::Done)
            && let Err(error) = self.origins.judge(self.operation)
        {
            self.stage = Stage::Failed(error);
        }
        let judged = match &self.stage {
            // A host function keeps its stream waiting, and so perhaps what it would wait for.
            Stage::Failed(_) if self.origins.linger() && !self.deadline.expired() && !is_off_limits() => {
                return None;
            }
            Stage::Failed(error) => Err(error.clone()),
            _ => Ok(()),
        };
        Some(self.stream.tell(&self.origins, judged))
    }
}

impl Wait {
    /// The wait of `operation` for what is on `stream` now.
    pub(crate) fn begin(operation: &'static str, stream: &Stream, deadline: Deadline) -> Result<Self> {
        stream.ready(operation)?;
        let origins = stream.history().origins();
        let (mark, stage) = if stream.is_idle()? {
            (None, Stage::Done)
        } else {
            (stream.in_flight().mark_all(stream.queue())?, Stage::OnDevice)
        };
        Ok(Self { operation, stream: stream.clone(), deadline, origins, mark, stage })
    }

    fn has_come(&self) -> Result<bool> {
        self.mark.as_ref().map_or_else(|| self.stream.is_idle(), |mark| self.stream.has_reached(mark))
    }

    #[cold]
    fn late(&self) -> Error {
        let detail = format!("work on a stream of {}{}", self.stream.device(), self.origins.pending());
        self.deadline.error(self.operation, detail).between(self.origins.between())
    }
}

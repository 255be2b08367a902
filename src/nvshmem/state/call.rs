//! What all calls of the library go through.

use super::inner::Inner;
use super::order::OrderUse;
use super::watchdog::Awaited;
use crate::cuda::{Busy, Device, Lend, Quiet, Stream, undisturbing};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::sys;

/// Entries that a put or a get may take of the queue of its stream.
pub(crate) const TRANSFER: usize = 2;

/// What a kernel of the library takes, with what stands before and behind it, a barrier for one.
pub(crate) const COLLECTIVE: usize = 10;

/// The most PEs that share one device.
const SHARING: usize = 40;

impl Inner {
    /// Runs `f`, a call of the library for this thread, which may wait for other PEs for ever: under the watchdog, and with the device current.
    pub(crate) fn on_host<R>(&self, operation: &'static str, f: impl FnOnce() -> R) -> Result<R> {
        self.on_host_with(operation, &Awaited::Nobody, f)
    }

    /// The same of a call to which these PEs have to come.
    pub(crate) fn on_host_with<R>(
        &self,
        operation: &'static str,
        awaited: &Awaited,
        f: impl FnOnce() -> R,
    ) -> Result<R> {
        self.ready(operation)?;
        self.call(operation, awaited, f)
    }

    /// The same of what a scope does itself.
    pub(crate) fn on_host_in_scope<R>(&self, operation: &'static str, f: impl FnOnce() -> R) -> Result<R> {
        self.ready_in_scope(operation)?;
        self.call(operation, &Awaited::Nobody, f)
    }

    /// The library ends the process where CUDA refuses what it does, as it would while another library captures a stream.
    fn call<R>(&self, operation: &'static str, awaited: &Awaited, f: impl FnOnce() -> R) -> Result<R> {
        let _current = self.device.bind(operation)?;
        undisturbing(|| Ok(self.watchdog.during(operation, self.timeout, awaited, f)))
    }

    /// The same, where the library waits for all of the device, which ends the process while a stream of it is being captured.
    pub(crate) fn on_quiet_device<R>(
        &self,
        operation: &'static str,
        awaited: &Awaited,
        f: impl FnOnce() -> R,
    ) -> Result<R> {
        self.on_quiet_device_by(operation, awaited, &self.deadline(), f)
    }

    /// Waits until the device has nothing to do, before a call for which these PEs come together: the library waits for all of the device there, without a
    /// deadline. It does not see streams of others ([`Stream::from_raw`]).
    pub(crate) fn idle(&self, operation: &'static str, awaited: &Awaited, deadline: &Deadline) -> Result<()> {
        self.idle_all(operation, awaited, deadline, &[self.device])
    }

    /// The same of several devices.
    pub(crate) fn idle_all(
        &self,
        operation: &'static str,
        awaited: &Awaited,
        deadline: &Deadline,
        devices: &[Device],
    ) -> Result<()> {
        let mut busy = Busy::with(devices);
        let device = busy.device().unwrap_or(self.device);
        let what = format!("other work on {device}, all of which NVSHMEM waits for");
        self.poll(operation, deadline, awaited, &what, || Ok(busy.is_over()))
    }

    /// Waits until the streams of the device that take turns with its legacy default stream have nothing to do: before a call that
    /// waits there, without a deadline. It does not see streams of others, as [`idle`](Self::idle).
    pub(crate) fn idle_in_legacy_order(&self, operation: &'static str) -> Result<()> {
        let mut busy = Busy::in_legacy_order(self.device);
        let what = format!("work on streams of {} that take turns with its legacy default stream", self.device);
        self.poll(operation, &self.deadline(), &Awaited::All, &what, || Ok(busy.is_over()))
    }

    /// The same, where the device has to be quiet by then.
    pub(crate) fn on_quiet_device_by<R>(
        &self,
        operation: &'static str,
        awaited: &Awaited,
        deadline: &Deadline,
        f: impl FnOnce() -> R,
    ) -> Result<R> {
        Quiet::check(operation, &[self.device])?;
        let _quiet = Quiet::keep(operation, &[self.device], deadline, || None)?;
        self.on_host_with(operation, awaited, f)
    }

    /// Runs `f`, which enqueues on `stream` what uses `memory`: up to so many entries.
    #[inline]
    pub(crate) fn on_stream<M: Lend, R>(
        &self,
        operation: &'static str,
        stream: &Stream,
        entries: usize,
        memory: M,
        f: impl FnOnce(sys::cudaStream_t) -> R,
    ) -> Result<R> {
        self.ready(operation)?;
        self.enqueue(operation, stream, entries, memory, f)
    }

    /// The same, also within a scope: of what that does itself, and of what calls the library for nothing.
    pub(crate) fn on_stream_in_scope<M: Lend, R>(
        &self,
        operation: &'static str,
        stream: &Stream,
        entries: usize,
        memory: M,
        f: impl FnOnce(sys::cudaStream_t) -> R,
    ) -> Result<R> {
        self.ready_in_scope(operation)?;
        self.enqueue(operation, stream, entries, memory, f)
    }

    #[inline]
    fn enqueue<M: Lend, R>(
        &self,
        operation: &'static str,
        stream: &Stream,
        entries: usize,
        memory: M,
        f: impl FnOnce(sys::cudaStream_t) -> R,
    ) -> Result<R> {
        self.check_stream(operation, stream)?;
        // A graph that is captured on the stream must not launch after the library has ended.
        let life = OrderUse::shared(stream.records().then_some(&*self.life));
        stream.launch_for(operation, entries, (memory, life), |stream, _| f(stream.as_raw()))
    }

    /// The same on the context's own stream, and waits for it, no longer than the timeout.
    pub(crate) fn on_own_stream<M: Lend>(
        &self,
        operation: &'static str,
        entries: usize,
        memory: M,
        f: impl FnOnce(sys::cudaStream_t),
    ) -> Result<()> {
        self.on_stream(operation, &self.stream, entries, memory, f)?;
        self.stream.wait_until(operation, &self.deadline())
    }

    /// The same of what PEs do together, which on shared devices waits for them on this thread.
    pub(crate) fn together_on_stream<M: Lend, R>(
        &self,
        operation: &'static str,
        stream: &Stream,
        memory: M,
        awaited: &Awaited,
        f: impl FnOnce(sys::cudaStream_t) -> R,
    ) -> Result<R> {
        if !self.is_limited() {
            return self.on_stream(operation, stream, COLLECTIVE, memory, f);
        }
        // The library waits for events of the other processes, which no capture survives.
        stream.no_part_of_capture(operation)?;
        // Twice it waits for an event of each of them.
        let entries = COLLECTIVE + 2 * self.n_pes.min(SHARING);
        self.on_stream(operation, stream, entries, memory, |stream| {
            self.watchdog.during(operation, self.timeout, awaited, || f(stream))
        })
    }

    /// Fails where the work of `stream` is done by another device.
    #[inline]
    pub(crate) fn check_stream(&self, operation: &'static str, stream: &Stream) -> Result<()> {
        if stream.device() == self.device {
            return Ok(());
        }
        let expected = format!("a stream of {}, the device of this PE", self.device);
        Err(Error::argument(operation, "stream", expected, format_args!("one of {}", stream.device())))
    }
}

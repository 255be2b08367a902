//! What all calls of the library go through.

use super::inner::Inner;
use super::order::OrderUse;
use super::place::Place;
use super::wait_idle::Death;
use super::wait_state::Awaited;
use crate::cuda::{Busy, Lend, Quiet, Stream, undisturbing};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::shared_deadline::SharedDeadline;
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

    /// As [`on_host_with`](Self::on_host_with), where the library waits for all of the device, which ends the process while a stream of it is being captured.
    pub(crate) fn on_quiet_device<R>(
        &self,
        operation: &'static str,
        awaited: &Awaited,
        f: impl FnOnce() -> R,
    ) -> Result<R> {
        self.on_quiet_device_by(operation, awaited, &self.deadline(), f)
    }

    /// Waits until the streams of the device that take turns with its legacy default stream have nothing to do: before a call that
    /// waits there, without a deadline. It does not see streams of others, as [`idle`](Self::idle).
    pub(crate) fn idle_in_legacy_order(&self, operation: &'static str) -> Result<()> {
        let mut busy = Busy::in_legacy_order(self.device);
        let what = format!("work on streams of {} that take turns with its legacy default stream", self.device);
        self.poll_local(operation, &SharedDeadline::within(self.timeout), &what, || Ok(busy.is_over()))
    }

    /// As [`on_quiet_device`](Self::on_quiet_device), once no stream of the device is captured, within the deadline.
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
        let _waits = SharedDeadline::begin();
        if !stream.has_room_for(entries) {
            self.wait_for_room(operation, stream, entries)?;
        }
        // A graph that is captured on the stream must not launch after the library has ended.
        let life = OrderUse::shared(stream.records().then_some(&*self.life));
        stream.launch_for(operation, || self.timeout, entries, (memory, life), |stream, _| f(stream.as_raw()))
    }

    /// Waits, no longer than the timeout, until there is room for so many entries on `stream`.
    #[cold]
    fn wait_for_room(&self, operation: &'static str, stream: &Stream, entries: usize) -> Result<()> {
        let death = Death::default();
        self.watchdog.during_wait(operation, self.timeout, &Awaited::All, |waiting| {
            stream.make_room_for(entries, operation, || self.timeout, || death.ends(self, waiting))
        })
    }

    /// Enqueues `f` on the context's own stream, as [`on_stream`](Self::on_stream) does, and waits for it, no longer than the timeout.
    pub(crate) fn on_own_stream<M: Lend>(
        &self,
        operation: &'static str,
        entries: usize,
        memory: M,
        f: impl FnOnce(sys::cudaStream_t),
    ) -> Result<()> {
        let _waits = SharedDeadline::begin();
        self.on_stream(operation, &self.stream, entries, memory, f)?;
        self.wait_for_own_stream(operation)
    }

    /// Enqueues `f` in its place: on the stream, or, for the host, on the context's own, and waits for that. There `idle` waits first for what
    /// streams do with the memory.
    pub(crate) fn on_some_stream<M: Lend, I>(
        &self,
        Place { operation, stream }: Place<'_>,
        entries: usize,
        memory: M,
        idle: impl FnOnce() -> Result<I>,
        f: impl FnOnce(sys::cudaStream_t),
    ) -> Result<()> {
        if let Some(stream) = stream {
            return self.on_stream(operation, stream, entries, memory, f);
        }
        self.ready(operation)?;
        let _waits = SharedDeadline::begin();
        // The stream is ordered after what comes meanwhile.
        drop(idle()?);
        self.on_own_stream(operation, entries, memory, f)
    }

    /// Waits until the context's own stream has done what is on it, no longer than the timeout. It may wait for any PE.
    pub(crate) fn wait_for_own_stream(&self, operation: &'static str) -> Result<()> {
        let deadline = SharedDeadline::within(self.timeout);
        self.watchdog.during_wait(operation, self.timeout, &Awaited::All, |waiting| {
            self.stream.wait_unless(operation, &deadline, || waiting.departure_error())
        })
    }

    /// Enqueues a collective. Where PEs share devices, the library waits for the other PEs on this thread.
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

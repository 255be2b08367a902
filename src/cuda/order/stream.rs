//! Streams: work of a device, done in order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::capture;
use super::in_flight::InFlight;
use super::mark::Mark;
use super::panics::Panics;
use super::queue::Queue;
use crate::cuda::devices::check::{check, check_on};
use crate::cuda::devices::device::{Device, in_host_function};
use crate::cuda::devices::pool;
use crate::cuda::works::history::History;
use crate::error::Result;
use crate::sys;

/// How a [`Stream`] is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOptions {
    /// Whether it runs beside the default stream of CUDA instead of taking turns with it. `true` by default.
    pub non_blocking: bool,
    /// Lower numbers go first; see [`Device::stream_priority_range`]. 0, the lowest, by default.
    pub priority: i32,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { non_blocking: true, priority: 0 }
    }
}

/// A queue of work on a device, done in order. Cloning gives another handle of the same queue.
///
/// The queue lives until the last handle is dropped; the memory that was used on it last holds one. Work that is
/// queued then is still done.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    queue: Queue,
    /// Whether it is destroyed with the last handle.
    owned: bool,
    history: History,
    panics: Arc<Panics>,
    in_flight: InFlight,
}

/// All streams with their handles, so that those which are made of one handle are one.
static ALL: Mutex<Vec<(usize, Weak<Inner>)>> = Mutex::new(Vec::new());

impl Stream {
    /// Wraps `cudaStreamCreateWithPriority`: a stream with default options.
    ///
    /// # Errors
    /// What CUDA says.
    pub fn new(device: Device) -> Result<Self> {
        Self::make("Stream::new", device, StreamOptions::default())
    }

    /// Wraps `cudaStreamCreateWithPriority`. A priority out of range is brought into it.
    ///
    /// # Errors
    /// What CUDA says.
    pub fn with_options(device: Device, options: StreamOptions) -> Result<Self> {
        Self::make("Stream::with_options", device, options)
    }

    fn make(operation: &'static str, device: Device, options: StreamOptions) -> Result<Self> {
        let _current = device.make_current(operation)?;
        let flags = if options.non_blocking { sys::cudaStreamNonBlocking } else { sys::cudaStreamDefault };
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes a handle to the address given.
        let code = unsafe { sys::cudaStreamCreateWithPriority(&raw mut raw, flags, options.priority) };
        check("cudaStreamCreateWithPriority", code)?;
        Ok(Self::wrap(device, raw, true))
    }

    fn wrap(device: Device, raw: sys::cudaStream_t, owned: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let in_flight = InFlight::new(!owned);
        let (history, panics) = (History::default(), Arc::default());
        pool::count_stream(device, true);
        let inner = Arc::new(Inner { queue: Queue { raw, device, serial }, owned, history, panics, in_flight });
        ALL.lock().unwrap_or_else(PoisonError::into_inner).push((raw.addr(), Arc::downgrade(&inner)));
        Self { inner }
    }

    /// A stream that somebody else made and destroys.
    ///
    /// Streams made of one handle are handles of one queue. As others may enqueue there too, fewer operations of this crate
    /// may be on their way than on a stream of its own.
    ///
    /// # Safety
    /// `raw` is a stream of `device`, and none of the handles that CUDA gives a meaning of their own (null,
    /// `cudaStreamLegacy`, `cudaStreamPerThread`). It stays alive as long as the returned value, its clones, all
    /// memory that was used on it, and every communicator that has worked on it; where memory was dropped while the stream was being
    /// captured, until work of this crate has gone on after that.
    pub unsafe fn from_raw(device: Device, raw: sys::cudaStream_t) -> Self {
        let known = {
            let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
            // One that is being dropped had a handle that is gone. Only what is returned is upgraded: the last handle must
            // not be dropped under the lock.
            all.iter().filter(|(handle, _)| *handle == raw.addr()).find_map(|(_, known)| known.upgrade())
        };
        match known {
            Some(inner) => {
                inner.in_flight.expose();
                Self { inner }
            }
            None => Self::wrap(device, raw, false),
        }
    }

    /// The `cudaStream_t`. It lives as long as this value.
    ///
    /// [`Stream::launch`] is the way to enqueue a kernel or a copy of one's own. What others enqueue by way of this handle is not known to
    /// this crate: nobody orders it against the uses of buffers, the memory is not kept for it, and *the bound on what is on its way
    /// ends there*: behind work that hangs, who enqueues too much waits inside the driver, for ever perhaps, and an abort with it. From
    /// now on fewer operations of this crate may be on their way there, because the others take places in its queue as well.
    /// While others capture it into a graph, whatever this crate would enqueue there or ask of it is an
    /// [`Error::InvalidUsage`](crate::Error::InvalidUsage).
    #[inline]
    pub fn as_raw(&self) -> sys::cudaStream_t {
        self.inner.in_flight.expose();
        self.inner.queue.raw
    }

    /// The `cudaStream_t`, on which only this crate enqueues, and counts what it does.
    #[inline]
    pub(crate) fn raw(&self) -> sys::cudaStream_t {
        self.inner.queue.raw
    }

    #[inline]
    pub(crate) fn in_flight(&self) -> &InFlight {
        &self.inner.in_flight
    }

    /// Fails where this thread may not call CUDA, and while the stream is being captured.
    #[inline]
    pub(crate) fn ready(&self, operation: &'static str) -> Result<()> {
        self.device().ready(operation)?;
        self.not_captured(operation)
    }

    /// Fails while the stream is being captured: nothing of this crate may be enqueued there then, and nobody may ask how far it is.
    #[inline]
    pub(crate) fn not_captured(&self, operation: &'static str) -> Result<()> {
        if self.in_flight().is_exposed() { capture::refuse(operation, self.queue()) } else { Ok(()) }
    }

    /// Whether it is being captured; where that cannot be asked, it is not.
    pub(crate) fn is_captured(&self) -> bool {
        self.in_flight().is_exposed() && capture::is_captured(self.queue()).unwrap_or(false)
    }

    /// Whether it is destroyed with its last handle, and not by others.
    pub(crate) fn is_owned(&self) -> bool {
        self.inner.owned
    }

    /// What CUDA knows it by.
    #[inline]
    pub(crate) fn queue(&self) -> Queue {
        self.inner.queue
    }

    /// After an enqueue, or an attempt, and before it is noted anywhere: counts what it cost.
    #[inline]
    pub(crate) fn count(&self, cost: u64) {
        self.inner.in_flight.count(cost);
    }

    /// The device that does the work.
    #[inline]
    pub fn device(&self) -> Device {
        self.inner.queue.device
    }

    /// Wraps `cudaStreamGetFlags`: 1 where the stream runs beside the default stream of CUDA.
    ///
    /// # Errors
    /// What CUDA says.
    pub fn flags(&self) -> Result<u32> {
        self.device().ready("Stream::flags")?;
        let mut flags = 0;
        // SAFETY: the handle is alive; writes one integer to the address given.
        check_on(self.device().ordinal(), "cudaStreamGetFlags", unsafe {
            sys::cudaStreamGetFlags(self.raw(), &raw mut flags)
        })?;
        Ok(flags)
    }

    /// Wraps `cudaStreamGetPriority`.
    ///
    /// # Errors
    /// What CUDA says.
    pub fn priority(&self) -> Result<i32> {
        self.device().ready("Stream::priority")?;
        let mut priority = 0;
        // SAFETY: the handle is alive; writes one integer to the address given.
        check_on(self.device().ordinal(), "cudaStreamGetPriority", unsafe {
            sys::cudaStreamGetPriority(self.raw(), &raw mut priority)
        })?;
        Ok(priority)
    }

    /// A point behind all that this crate has enqueued here so far.
    pub(crate) fn mark(&self) -> Result<Mark> {
        self.inner.in_flight.mark(self.queue())
    }

    /// The operations of communicators that it has to do with.
    #[inline]
    pub(crate) fn history(&self) -> &History {
        &self.inner.history
    }

    /// What leads back to it as long as somebody has a handle.
    pub(crate) fn downgrade(&self) -> Weak<Inner> {
        Arc::downgrade(&self.inner)
    }

    /// The stream that [`Stream::downgrade`] was asked of.
    pub(crate) fn upgrade(inner: &Weak<Inner>) -> Option<Self> {
        inner.upgrade().map(|inner| Self { inner })
    }

    /// Panics of its host functions that no wait has told yet.
    pub(crate) fn panics(&self) -> &Arc<Panics> {
        &self.inner.panics
    }

    /// A number that no other stream has as long as this one is there.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    /// A number that no other stream has, nor had.
    #[inline]
    pub(crate) fn serial(&self) -> u64 {
        self.inner.queue.serial
    }
}

impl PartialEq for Stream {
    /// Whether both are handles of one queue.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Stream {}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("device", &self.inner.queue.device).field("raw", &self.inner.queue.raw).finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        pool::count_stream(self.queue.device, false);
        let this: *const Self = self;
        ALL.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, known)| known.as_ptr() != this);
        if self.owned && !in_host_function() {
            // SAFETY: the handle came from cudaStreamCreateWithPriority and is used no more. CUDA frees the stream
            // when its work is done.
            let _ = check("cudaStreamDestroy", unsafe { sys::cudaStreamDestroy(self.queue.raw) });
        }
    }
}

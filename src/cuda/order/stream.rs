//! Streams: work of a device, done in order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::capture::Capture;
use super::in_flight::InFlight;
use super::mark::Mark;
use super::panics::Panics;
use super::queue::Queue;
use super::{capture, left};
use crate::cuda::devices::check::{check, check_on};
use crate::cuda::devices::device::Device;
use crate::cuda::devices::thread::is_off_limits;
use crate::cuda::devices::{owners, pool};
use crate::cuda::works::history::History;
use crate::cuda::works::work::Lane;
use crate::error::{Error, Result};
use crate::lock::Mutex;
use crate::sys;

/// How a [`Stream`] is made.
///
/// ```
/// use gpucomm::cuda::StreamOptions;
///
/// let options = StreamOptions::new().with_non_blocking(false).with_priority(-1);
/// assert_ne!(options, StreamOptions::default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct StreamOptions {
    non_blocking: bool,
    priority: i32,
}

impl StreamOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the stream runs beside the default stream of CUDA instead of taking turns with
    /// it. `true` by default.
    pub fn with_non_blocking(mut self, non_blocking: bool) -> Self {
        self.non_blocking = non_blocking;
        self
    }

    /// Sets the priority. Lower numbers go first; see [`Device::stream_priority_range`]. 0, the
    /// lowest, by default.
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }
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
///
/// ```
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let stream = Stream::new(Device::new(0)?)?;
/// let other = Stream::new(stream.device())?;
/// let x = DeviceBuffer::from_slice(&stream, &[1, 2, 3])?;
/// let mut y = DeviceBuffer::<i32>::zeroed(&other, 3)?;
/// // The other stream waits for the first one, on the device, because this reads `x`.
/// y.copy_from(&other, &x)?;
/// other.synchronize()?;
/// assert!(other.query()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(super) queue: Queue,
    pub(super) life: Life,
    /// What is dropped when the last handle is.
    pub(super) owners: Mutex<Vec<Box<dyn Send>>>,
    history: History,
    panics: Arc<Panics>,
    in_flight: InFlight,
    given_up: Mutex<Option<GivenUp>>,
    /// The capture that it was made for.
    capture: Option<Arc<Capture>>,
}

/// The last wait that was not over in time.
#[derive(Clone)]
struct GivenUp {
    /// Up to where it would have waited, where there was room for a mark.
    mark: Option<Mark>,
    /// Where the stream stood.
    position: u64,
    waited: Duration,
    /// Says what hangs. `None` if whoever waited does not know.
    error: Option<Error>,
}

/// How long CUDA has a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// Until the last handle is dropped, which destroys it.
    Ours,
    /// As long as somebody else says. With an owner that is at least as long as there is a handle.
    Theirs,
    /// As long as the process.
    Endless,
}

/// A handle, and the device that it is of: the null stream has one handle on all.
type Key = (usize, Device);

/// All streams with their handles, so that those which are made of one handle are one.
static ALL: Mutex<Vec<(Key, Weak<Inner>)>> = Mutex::new(Vec::new());

/// All streams that have a handle, but for those that others may destroy as soon as theirs is gone.
pub(super) fn all_kept() -> Vec<Stream> {
    let all = ALL.lock();
    // Those that are left out go without the lock: one of them may have the last handle.
    let mut streams: Vec<_> =
        all.iter().filter_map(|(_, known)| known.upgrade()).map(|inner| Stream { inner }).collect();
    drop(all);
    streams.retain(|stream| {
        let owners = || stream.inner.owners.lock();
        stream.inner.life != Life::Theirs || !owners().is_empty()
    });
    streams
}

impl Stream {
    /// Wraps `cudaStreamCreateWithPriority`: a stream with default options.
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "cudaStreamCreateWithPriority")]
    pub fn new(device: Device) -> Result<Self> {
        Self::make("Stream::new", device, StreamOptions::default())
    }

    /// Wraps `cudaStreamCreateWithPriority`. A priority out of range is brought into it.
    ///
    /// ```
    /// # use gpucomm::{Device, Stream};
    /// # use gpucomm::cuda::StreamOptions;
    /// # fn main() -> gpucomm::Result<()> {
    /// let device = Device::new(0)?;
    /// let (_, greatest) = device.stream_priority_range()?;
    /// let urgent = Stream::new_with(device, &StreamOptions::new().with_priority(greatest))?;
    /// assert_eq!((urgent.priority()?, urgent.flags()?), (greatest, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "cudaStreamCreateWithPriority")]
    pub fn new_with(device: Device, options: &StreamOptions) -> Result<Self> {
        Self::make("Stream::new_with", device, *options)
    }

    fn make(operation: &'static str, device: Device, options: StreamOptions) -> Result<Self> {
        let raw = Self::create(operation, device, options)?;
        Ok(Self::wrap(device, raw, Life::Ours))
    }

    /// One of a capture, for that alone.
    pub(crate) fn of_capture(operation: &'static str, device: Device, capture: Arc<Capture>) -> Result<Self> {
        capture.enter(operation, device)?;
        let raw = Self::create(operation, device, StreamOptions::default())?;
        Ok(Self::new_inner(device, raw, Life::Ours, Some(capture)))
    }

    fn create(operation: &'static str, device: Device, options: StreamOptions) -> Result<sys::cudaStream_t> {
        let _current = device.make_current(operation)?;
        let flags = if options.non_blocking { sys::cudaStreamNonBlocking } else { sys::cudaStreamDefault };
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes a handle to the address given.
        let code = unsafe { sys::cudaStreamCreateWithPriority(&raw mut raw, flags, options.priority) };
        check("cudaStreamCreateWithPriority", code)?;
        Ok(raw)
    }

    fn wrap(device: Device, raw: sys::cudaStream_t, life: Life) -> Self {
        let stream = Self::new_inner(device, raw, life, None);
        stream.enter(&mut ALL.lock());
        stream
    }

    /// From now on it is known by its handle.
    fn enter(&self, all: &mut Vec<((usize, Device), Weak<Inner>)>) {
        let queue = self.inner.queue;
        all.push(((queue.raw.addr(), queue.device), Arc::downgrade(&self.inner)));
    }

    fn new_inner(device: Device, raw: sys::cudaStream_t, life: Life, capture: Option<Arc<Capture>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let in_flight = InFlight::new(life != Life::Ours || capture.is_some());
        let (history, panics, owners) = (History::default(), Arc::default(), Mutex::default());
        pool::count_stream(device, true);
        let queue = Queue { raw, device, serial };
        let given_up = Mutex::default();
        let inner = Arc::new(Inner { queue, life, owners, history, panics, in_flight, given_up, capture });
        Self { inner }
    }

    /// The stream with this handle.
    pub(super) fn known(device: Device, raw: sys::cudaStream_t, life: Life) -> Self {
        // Under one lock: two threads that ask at the same time get the same one.
        let mut all = ALL.lock();
        // One that is being dropped had a handle that is gone. Only what is returned is upgraded: the last handle must
        // not be dropped under the lock.
        let known = all.iter().filter(|(key, _)| *key == (raw.addr(), device)).find_map(|(_, known)| known.upgrade());
        match known {
            Some(inner) => {
                drop(all);
                inner.in_flight.expose();
                Self { inner }
            }
            None => {
                let stream = Self::new_inner(device, raw, life, None);
                stream.enter(&mut all);
                stream
            }
        }
    }

    /// Drops `owner` when the last handle is dropped.
    pub(super) fn keep(&self, owner: Box<dyn Send>) {
        self.inner.owners.lock().push(owner);
    }

    /// The same, unless somebody keeps it alive for others who borrow it, or it lives as long as the process.
    #[cfg(feature = "cudarc")]
    pub(super) fn keep_once(&self, owner: impl FnOnce() -> Box<dyn Send>) {
        let mut owners = self.inner.owners.lock();
        if owners.is_empty() && self.inner.life == Life::Theirs {
            owners.push(owner());
        }
    }

    /// Returns the stream if this is its last handle. `all_kept` holds handles of all streams for a moment, so this tries again.
    pub(super) fn last(self) -> Option<Inner> {
        let mut inner = self.inner;
        for _ in 0..5 {
            match Arc::try_unwrap(inner) {
                Ok(last) => return Some(last),
                Err(shared) => inner = shared,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Arc::into_inner(inner)
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

    /// Fails where this thread may not call CUDA, and while the stream is being captured. Makes the device of a null stream the current
    /// one: calls with its handle may follow.
    #[inline]
    pub(crate) fn ready(&self, operation: &'static str) -> Result<()> {
        self.device().ready(operation)?;
        if self.in_flight().is_exposed() { self.shared_ready(operation) } else { Ok(()) }
    }

    #[cold]
    fn shared_ready(&self, operation: &'static str) -> Result<()> {
        if let Some(capture) = &self.inner.capture {
            return Err(capture.refusal(operation));
        }
        std::mem::forget(self.queue().hold_device(operation)?);
        capture::refuse(operation, self.queue())
    }

    /// Before one of several calls for different streams, all of which are ready: makes the device of a null stream the current one. Where
    /// that fails, so does the call.
    #[cfg(any(feature = "nccl", feature = "nvshmem"))]
    #[inline]
    pub(crate) fn make_current(&self) {
        if self.queue().is_legacy() {
            std::mem::forget(self.queue().hold_device("cudaSetDevice"));
        }
    }

    /// Fails while the stream is being captured: nothing of this crate may be enqueued there then, and nobody may ask how far it is.
    #[inline]
    pub(crate) fn not_captured(&self, operation: &'static str) -> Result<()> {
        if self.in_flight().is_exposed() { capture::refuse(operation, self.queue()) } else { Ok(()) }
    }

    /// The capture that it was made for.
    #[inline]
    pub(crate) fn capture_of(&self) -> Option<&Arc<Capture>> {
        self.inner.capture.as_ref()
    }

    /// Whether what is enqueued here becomes part of a graph of this crate.
    #[inline]
    pub(crate) fn records(&self) -> bool {
        self.inner.capture.is_some()
    }

    /// Whether it is being captured; where that cannot be asked, it is not.
    pub(crate) fn is_captured(&self) -> bool {
        self.in_flight().is_exposed() && capture::is_captured(self.queue()).unwrap_or(false)
    }

    /// Whether others may destroy it as soon as nobody holds it.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.inner.life == Life::Theirs
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
    #[doc(alias = "cudaStreamGetFlags")]
    pub fn flags(&self) -> Result<u32> {
        self.device().ready("Stream::flags")?;
        self.queue().flags()
    }

    /// Wraps `cudaStreamGetPriority`.
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "cudaStreamGetPriority")]
    pub fn priority(&self) -> Result<i32> {
        self.device().ready("Stream::priority")?;
        let _current = self.queue().hold_device("cudaStreamGetPriority")?;
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

    /// A wait for all before `mark`, or for all, has ended with `error`. Keeps the error of the longest
    /// wait that was late.
    #[cold]
    pub(crate) fn give_up(&self, mark: Option<&Mark>, error: &Error) {
        if let Error::Timeout { timeout, .. } = error {
            self.note_given_up(mark, *timeout, Some(error));
        }
    }

    fn note_given_up(&self, mark: Option<&Mark>, waited: Duration, error: Option<&Error>) {
        if self.last_timeout() < waited {
            let (mark, position, error) = (mark.cloned(), self.in_flight().position(), error.cloned());
            *self.inner.given_up.lock() = Some(GivenUp { mark, position, waited, error });
        }
    }

    /// The same of a wait for all that is here. A stream that is done with it keeps nothing. Neither waits nor enqueues a mark: a call
    /// that enqueues may wait for a lock of the driver.
    #[cold]
    pub(crate) fn give_up_all(&self, error: &Error) {
        if let Error::Timeout { timeout, .. } = error {
            self.give_up_all_after(*timeout, Some(error));
        }
    }

    /// The same of a wait that took so long. `error` says what hangs, if that is known.
    #[cold]
    pub(crate) fn give_up_all_after(&self, waited: Duration, error: Option<&Error>) {
        if !self.is_drained().unwrap_or(true) {
            let unreached = self.in_flight().newest().filter(|mark| matches!(mark.reached(), Ok(false)));
            self.note_given_up(unreached.as_ref(), waited, error);
        }
    }

    /// The last wait that was not over in time, if the stream has still not come to where that wait would have ended.
    /// `None` if there is no mark and later work was enqueued: that work hides whether the stream has come there.
    fn last_given_up(&self) -> Option<GivenUp> {
        let given_up = self.inner.given_up.lock().clone()?;
        let is_past = match &given_up.mark {
            Some(mark) => mark.reached(),
            None if self.in_flight().position() != given_up.position => Ok(true),
            None => self.is_drained(),
        };
        (!is_past.unwrap_or(true)).then_some(given_up)
    }

    /// The error of that wait, if it says what hangs.
    #[cfg(feature = "nccl")]
    pub(crate) fn given_up(&self) -> Option<Error> {
        self.last_given_up()?.error
    }

    /// Returns how long that wait took, and zero if nobody has waited.
    pub(crate) fn last_timeout(&self) -> Duration {
        self.last_given_up().map_or(Duration::ZERO, |given_up| given_up.waited)
    }

    /// The length of the longest late wait for it, unless what that waited for is known to be done. Does not call CUDA, so that work
    /// may be done that this counts.
    #[cfg(feature = "nccl")]
    pub(crate) fn may_be_given_up_after(&self) -> Duration {
        let known = self.inner.given_up.lock();
        let last = known.as_ref().filter(|known| !self.in_flight().has_seen(known.position));
        last.map_or(Duration::ZERO, |known| known.waited)
    }

    /// A number that no other stream has, nor had.
    #[inline]
    pub(crate) fn serial(&self) -> u64 {
        self.inner.queue.serial
    }
}

impl Lane for Inner {
    fn give_up(self: Arc<Self>, error: &Error) {
        Stream { inner: self }.give_up_all(error);
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

impl Inner {
    /// Remembers work that is not done, which CUDA completes after the stream is destroyed.
    fn leave_work(&self) {
        if self.capture.is_some() || (self.in_flight.places() == 0 && !self.in_flight.is_exposed()) {
            return;
        }
        let mark = match self.in_flight.has_reserve(self.queue) {
            Ok(true) => self.in_flight.mark_all(self.queue).ok().flatten(),
            // There is no place for a mark: the last one is near the end.
            _ => self.in_flight.newest(),
        };
        if let Some(mark) = mark.filter(|mark| matches!(mark.reached(), Ok(false))) {
            left::add(mark, self.queue);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        pool::count_stream(self.queue.device, false);
        // Of this one there is no handle any more.
        ALL.lock().retain(|(_, known)| known.strong_count() > 0);
        let owners = self.owners.get_mut();
        // Locks may be held here, or this is a host function.
        owners.drain(..).for_each(|owner| owners::drop_elsewhere(owner, self.queue.device));
        if self.life == Life::Ours && !is_off_limits() {
            self.leave_work();
            // SAFETY: the handle came from cudaStreamCreateWithPriority and is used no more. CUDA frees the stream
            // when its work is done.
            let _ = check("cudaStreamDestroy", unsafe { sys::cudaStreamDestroy(self.queue.raw) });
        }
    }
}

#[cfg(all(test, feature = "nccl", gpucomm_emulator))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_late_wait_counts_until_what_it_waited_for_is_seen_done() {
        let stream = Stream::new(Device::new(0).unwrap()).unwrap();
        let held_up = || {
            let (let_go, until) = channel::<()>();
            stream.launch_host(move || _ = until.recv()).unwrap();
            let_go
        };
        let time = Duration::from_millis(50);
        let let_go = held_up();
        assert!(matches!(stream.synchronize_timeout(time), Err(Error::Timeout { .. })));
        assert!(stream.may_be_given_up_after() >= time);
        drop(let_go);
        stream.synchronize().unwrap();
        let let_go = held_up();
        assert_eq!(stream.may_be_given_up_after(), Duration::ZERO, "nobody has waited for this in vain");
        drop(let_go);
    }
}

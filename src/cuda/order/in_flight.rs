//! How much of the work of a stream is on its way.
//!
//! The driver's launch queue has 1021 places (docs/measurements/2026-11-21-h200-driver.md). Behind work that hangs it fills, and whoever needs one more
//! place waits inside the driver, with locks that an abort needs. So a stream counts whatever takes a place there,
//! whoever enqueues it, and who would add too much waits here, where there is a deadline.
//!
//! Counted is *cost*: 1 for a copy, a fill, a host function, an event recorded or waited for, memory allocated or freed;
//! [`LAUNCH`] for a launch of NCCL, because an aborted kernel takes milliseconds to notice. `enqueued` only grows. A mark
//! is recorded now and then and knows what `enqueued` was; once it is reached, that much is `done`. A stream whose
//! waits have seen that all is done needs no marks.
//!
//! Those who must not wait, destructors and what orders streams, take from [`RESERVE`]. Of marks one is enough as long
//! as nothing comes after it, so that even they cannot fill the queue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::capture;
use super::mark::Mark;
use super::queue::Queue;
use crate::cuda::devices::check::check_on;
use crate::cuda::devices::pool;
use crate::error::Result;
use crate::lock::{Mutex, MutexGuard};
use crate::sys;

/// The cost of what takes one place in the queue.
pub(crate) const ENTRY: u64 = 1;

/// The cost of a launch of NCCL.
pub(crate) const LAUNCH: u64 = 3;

/// The cost between two marks, where there are not many streams.
pub(crate) const CHUNK: u64 = 96;

/// Chunks that may be on their way: 96 launches of NCCL. With 128 an abort on four H200s took 0.7 s and, once in sixty times, 1.02; with
/// 64 at most 0.82 (docs/measurements/2026-11-22-h200-four.md), and every mark costs as much as several launches.
const CHUNKS: u64 = 3;

/// Chunks without a mark on a stream that was seen to be done with everything: many programs wait before they get there.
const QUIET: u64 = 2;

/// The cost that destructors may add. With it, more than half of the queue stays free.
const RESERVE: u64 = 128;

/// Launches of NCCL that may be on their way.
pub(crate) const MOST_LAUNCHES: u64 = CHUNKS * CHUNK / LAUNCH;

/// Channels of the hardware to a device. Streams beyond that share them, and with them the launch queue.
const CHANNELS: u64 = 8;

/// The chunk of a stream that has least, and of one that others enqueue on as well: what they add is not known, only how
/// far the stream is.
const LEAST_CHUNK: u64 = 24;

/// Marks that a stream remembers to wait for already.
const FOLLOWED: usize = 4;

/// What is on its way on one stream.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// The cost of all that was ever enqueued.
    enqueued: AtomicU64,
    /// Up to here nobody has to look at anything.
    free_until: AtomicU64,
    /// How much of `enqueued` is known to be done.
    done: AtomicU64,
    /// Whether others enqueue here too.
    exposed: AtomicBool,
    /// Whether memory remembers where the stream stood with each use.
    precise: AtomicBool,
    /// The position after the last work that may take for ever and is not NCCL's.
    other_work: AtomicU64,
    /// Marks that later work waits for already, by their numbers.
    followed: [AtomicU64; FOLLOWED],
    marks: Mutex<Marks>,
}

#[derive(Debug, Default)]
struct Marks {
    /// Those that tell how far the stream is, the oldest first.
    outstanding: VecDeque<Mark>,
    /// Where the last of them stands.
    last: u64,
    /// The newest of all marks.
    newest: Option<Mark>,
    /// One that is used no more.
    spare: Option<Mark>,
}

impl InFlight {
    pub(crate) fn new(exposed: bool) -> Self {
        Self {
            enqueued: AtomicU64::new(0),
            free_until: AtomicU64::new(0),
            done: AtomicU64::new(0),
            exposed: AtomicBool::new(exposed),
            precise: AtomicBool::new(false),
            other_work: AtomicU64::new(0),
            followed: [const { AtomicU64::new(0) }; FOLLOWED],
            marks: Mutex::default(),
        }
    }

    /// Others may enqueue on the stream from now on.
    #[inline]
    pub(crate) fn expose(&self) {
        if !self.is_exposed() {
            let _marks = self.lock();
            self.exposed.store(true, Ordering::Relaxed);
            // What was granted before was more.
            self.free_until.store(0, Ordering::Relaxed);
        }
    }

    /// Whether others may enqueue on the stream.
    #[inline]
    pub(crate) fn is_exposed(&self) -> bool {
        self.exposed.load(Ordering::Relaxed)
    }

    /// From now on memory remembers where the stream stands with each use.
    #[cfg(feature = "nccl")]
    pub(crate) fn set_precise(&self) {
        self.precise.store(true, Ordering::Relaxed);
    }

    /// Whether it does.
    #[inline]
    pub(crate) fn is_precise(&self) -> bool {
        self.precise.load(Ordering::Relaxed)
    }

    /// The cost between two marks on `stream`, which this belongs to.
    fn chunk(&self, stream: Queue) -> u64 {
        if self.is_exposed() {
            return LEAST_CHUNK;
        }
        (CHUNK * CHANNELS / pool::streams(stream.device).max(CHANNELS)).max(LEAST_CHUNK)
    }

    /// Whether there is room for `cost`, as far as can be said without a look at the device.
    #[inline]
    pub(crate) fn has_room(&self, cost: u64) -> bool {
        self.enqueued.load(Ordering::Relaxed) + cost <= self.free_until.load(Ordering::Relaxed)
    }

    /// Whether there is room for `cost` on `stream`, which this belongs to. Asks the device, and does not wait.
    pub(crate) fn advance(&self, stream: Queue, cost: u64) -> Result<bool> {
        self.advance_by(stream, cost, 0)
    }

    /// How much is not known to be done.
    pub(crate) fn places(&self) -> u64 {
        self.enqueued.load(Ordering::Relaxed) - self.done.load(Ordering::Relaxed)
    }

    /// Whether one more place may be taken by somebody who cannot wait.
    pub(crate) fn has_reserve(&self, stream: Queue) -> Result<bool> {
        if self.enqueued.load(Ordering::Relaxed) < self.free_until.load(Ordering::Relaxed) {
            return Ok(true);
        }
        self.advance_by(stream, ENTRY, RESERVE)
    }

    /// Whether there is room for `cost`, `reserve` more than usual included. Asks the device how far it is, and does not
    /// wait.
    #[cold]
    fn advance_by(&self, stream: Queue, cost: u64, reserve: u64) -> Result<bool> {
        let chunk = self.chunk(stream);
        let bound = CHUNKS * chunk;
        // What is more than the bound by itself goes behind no more than a chunk.
        let needed = cost.min(bound - chunk);
        let mut marks = self.lock();
        let mut marked = false;
        loop {
            let (enqueued, done) = (self.position(), self.done.load(Ordering::Acquire));
            while marks.outstanding.front().is_some_and(|mark| mark.position() <= done) {
                marks.spare = marks.outstanding.pop_front();
            }
            let due = (marks.last + chunk).max(done + QUIET * chunk);
            if !marked && enqueued > marks.last.max(done) && enqueued + cost > due {
                marked = true;
                let mark = self.mark_under(&mut marks, stream)?;
                marks.last = mark.position();
                marks.outstanding.push_back(mark);
                continue;
            }
            if enqueued + needed <= done + bound + reserve {
                if reserve == 0 {
                    let free_until = due.min(done + bound).max(enqueued + cost);
                    self.free_until.store(free_until, Ordering::Relaxed);
                }
                return Ok(true);
            }
            match marks.outstanding.front() {
                Some(mark) if mark.reached()? => self.see(mark.position()),
                _ => return Ok(false),
            }
        }
    }

    /// Counts what was enqueued.
    #[inline]
    pub(crate) fn count(&self, cost: u64) {
        // Whoever reads the sum, and records a mark then, records it after this work. `Tracker` needs SeqCst.
        self.enqueued.fetch_add(cost, Ordering::SeqCst);
    }

    /// Call this after work was enqueued and counted that may take for ever: a host function, a kernel of the user, a graph, a
    /// call of NVSHMEM, or a wait for another device.
    #[inline]
    pub(crate) fn note_other_work(&self) {
        self.other_work.fetch_max(self.position(), Ordering::Relaxed);
    }

    /// Returns true if such work is not known to be done, or others enqueue on the stream. Does not ask the device.
    #[cfg(feature = "nccl")]
    pub(crate) fn may_have_other_work(&self) -> bool {
        self.is_exposed() || !self.has_seen(self.other_work.load(Ordering::Relaxed))
    }

    /// Where the stream stands. All that was counted so far was enqueued before.
    pub(crate) fn position(&self) -> u64 {
        self.enqueued.load(Ordering::SeqCst)
    }

    /// What was enqueued up to `position` is done.
    #[inline]
    pub(crate) fn see(&self, position: u64) {
        if self.done.load(Ordering::Relaxed) < position {
            self.done.fetch_max(position, Ordering::AcqRel);
        }
    }

    /// Whether what was enqueued up to `position` is known to be done.
    #[inline]
    pub(crate) fn has_seen(&self, position: u64) -> bool {
        self.done.load(Ordering::Acquire) >= position
    }

    /// A mark behind all that this crate has enqueued so far; not always a new one.
    pub(crate) fn mark(&self, stream: Queue) -> Result<Mark> {
        self.mark_under(&mut self.lock(), stream)
    }

    /// A new mark behind everything that is on the stream; `None` where there is no place for one.
    pub(crate) fn mark_all(&self, stream: Queue) -> Result<Option<Mark>> {
        if !self.is_exposed() {
            return self.mark(stream).map(Some);
        }
        if !self.has_reserve(stream)? {
            return Ok(None);
        }
        self.new_mark(&mut self.lock(), stream).map(Some)
    }

    /// The newest mark that there is.
    pub(crate) fn newest(&self) -> Option<Mark> {
        self.lock().newest.clone()
    }

    /// A new mark behind everything that is on the stream, for which the caller has made room.
    pub(crate) fn mark_anew(&self, stream: Queue) -> Result<Mark> {
        self.new_mark(&mut self.lock(), stream)
    }

    fn mark_under(&self, marks: &mut Marks, stream: Queue) -> Result<Mark> {
        match &marks.newest {
            Some(mark) if mark.position() == self.position() => Ok(mark.clone()),
            _ => self.new_mark(marks, stream),
        }
    }

    fn new_mark(&self, marks: &mut Marks, stream: Queue) -> Result<Mark> {
        if self.is_exposed() {
            capture::refuse("cudaEventRecord", stream)?;
        }
        let before = self.position();
        let mut mark = Mark::record(stream, marks.spare.take())?;
        // Where others came in between, some of what they enqueued may be behind the mark.
        let undisturbed = self.enqueued.fetch_add(ENTRY, Ordering::AcqRel) == before;
        mark.set_position(if undisturbed { before + ENTRY } else { before });
        marks.newest = Some(mark.clone());
        Ok(mark)
    }

    /// Wraps `cudaStreamWaitEvent`: later work on `stream`, which this belongs to, comes after `mark`. Once is enough.
    pub(crate) fn hold(&self, stream: Queue, mark: &Mark) -> Result<()> {
        if self.follows(mark) {
            return Ok(());
        }
        let _current = stream.hold_device("cudaStreamWaitEvent")?;
        // SAFETY: both handles are alive; they may be of different devices.
        let code = unsafe { sys::cudaStreamWaitEvent(stream.raw, mark.raw(), 0) };
        check_on(stream.device.ordinal(), "cudaStreamWaitEvent", code)?;
        self.count(ENTRY);
        if mark.device() != stream.device {
            self.note_other_work();
        }
        self.set_follows(mark);
        Ok(())
    }

    /// Whether later work of this stream is known to wait for `mark`.
    fn follows(&self, mark: &Mark) -> bool {
        self.followed[mark.number() as usize % FOLLOWED].load(Ordering::Acquire) == mark.number()
    }

    /// Later work of this stream waits for `mark`.
    fn set_follows(&self, mark: &Mark) {
        self.followed[mark.number() as usize % FOLLOWED].store(mark.number(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock()
    }
}

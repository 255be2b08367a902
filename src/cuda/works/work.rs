//! Work that may fail behind the back of CUDA: the operations of a communicator on a stream.
//!
//! CUDA says when a stream has come past an operation, not whether the operation was right: one that was aborted leaves
//! its stream as if it had been done. So memory, streams and events remember the operations that they come from, as
//! [`Origin`]s, and every wait asks these when the device is done, before it says that all is well.
//!
//! # Why no failure is missed
//!
//! A worker writes down that it ends before it stops anything on the device, and the device is done with stopped work
//! only after that. So whoever finds the device done by an abort finds the worker ended, too.
//!
//! What a wait has once found done and well stays well: [`Work`] keeps the number of the last such operation. The
//! operations of a work come one after the other on one stream, so all before that one are well, too. What nobody had
//! found done when the worker failed counts as failed: to ask the device then would be too late.
//!
//! # Why nothing is written later
//!
//! Workers on other devices may write into the memory of this one, and they do not all stop at the same moment. So who tells
//! of a failure first waits until all of them are gone, as far as its deadline lets it, and what is overwritten before that
//! counts as failed still.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::cuda::devices::thread::is_off_limits;
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};

/// How long after a failure it is waited for what may still write.
const LINGERING: Duration = Duration::from_secs(10);

/// Whether any work of this process has failed.
static FAILURES: AtomicBool = AtomicBool::new(false);

/// The stream of a work. This floor knows no more of it.
pub(crate) trait Lane: Send + Sync {
    /// A wait for all that is on it has ended with `error`.
    fn give_up(self: Arc<Self>, error: &Error);
}

/// What does the work: a communicator. This floor knows no more of it.
pub(crate) trait Worker: std::fmt::Debug + Send + Sync {
    /// Whether nothing has gone wrong, as far as can be known. Never waits, and takes no lock that an enqueue holds.
    fn health(&self) -> Result<()>;

    /// What the operations after number `done`, up to number `last`, wait for, where somebody knows: operation, number, rank,
    /// peer, who is behind.
    fn pending(&self, done: u64, last: u64) -> Option<String>;

    /// The rank of the worker, and the one that these operations wait for, if it is known to be one.
    fn between(&self, _done: u64, _last: u64) -> (Option<usize>, Option<usize>) {
        (None, None)
    }

    /// Somebody waits for these operations. Ends what can never come to an end; never waits.
    fn look_around(&self, done: u64, last: u64);

    /// After a failure: whether none of its operations is on a device any more, nor any of others that write into its memory.
    fn has_left(&self) -> bool;
}

/// How a worker has ended, if it has. The first word on it stays.
#[derive(Debug)]
pub(crate) struct Fate {
    made: u64,
    end: OnceLock<End>,
}

#[derive(Debug)]
struct End {
    at: u64,
    when: Instant,
    failure: Option<Error>,
}

/// Later than all moments before, in the one order in which communicators are made and fail.
pub(crate) fn now() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::AcqRel)
}

impl Default for Fate {
    fn default() -> Self {
        Self { made: now(), end: OnceLock::new() }
    }
}

/// Whether any work of this process has ever failed.
#[inline]
pub(crate) fn any_failures() -> bool {
    FAILURES.load(Ordering::Acquire)
}

impl Fate {
    /// It has failed, or was aborted; before anything on the device is stopped.
    pub(crate) fn fail(&self, error: Error) {
        FAILURES.store(true, Ordering::Release);
        self.end(Some(error));
    }

    /// All that it did is done, and well.
    pub(crate) fn close(&self) {
        self.end(None);
    }

    fn end(&self, failure: Option<Error>) {
        let _ = self.end.set(End { at: now(), when: Instant::now(), failure });
    }

    fn is_closed(&self) -> bool {
        self.end.get().is_some_and(|end| end.failure.is_none())
    }

    fn failure(&self) -> Option<&Error> {
        self.end.get().and_then(|end| end.failure.as_ref())
    }

    /// When it has failed, if it has.
    #[cfg(feature = "nccl")]
    pub(crate) fn failed_at(&self) -> Option<Instant> {
        self.end.get().filter(|end| end.failure.is_some()).map(|end| end.when)
    }

    /// Whether it has failed so short a time ago that it is worth while to wait for what may still write.
    pub(crate) fn is_fresh_failure(&self) -> bool {
        self.end.get().is_some_and(|end| end.failure.is_some() && end.when.elapsed() < LINGERING)
    }
}

/// The operations of one worker on one stream. Their numbers grow; the worker's operations on other streams have the
/// numbers between.
#[derive(Debug)]
pub(crate) struct Work {
    /// Unlike that of any other work; 0 where numbers ran out.
    id: u32,
    /// All its operations have greater numbers.
    base: u64,
    /// The last operation that was enqueued.
    enqueued: AtomicU64,
    /// The last operation that somebody has found done and well.
    observed: AtomicU64,
    fate: Arc<Fate>,
    worker: Weak<dyn Worker>,
    /// The stream of its operations, where it is known.
    stream: Option<Weak<dyn Lane>>,
}

impl Work {
    /// A work whose operations come after number `base`.
    pub(crate) fn new(worker: Weak<dyn Worker>, fate: Arc<Fate>, base: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = u32::try_from(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
        Self { id, base, enqueued: AtomicU64::new(base), observed: AtomicU64::new(base), fate, worker, stream: None }
    }

    /// The same, on `stream`.
    #[cfg(feature = "nccl")]
    pub(crate) fn on(self, stream: Weak<dyn Lane>) -> Self {
        Self { stream: Some(stream), ..self }
    }

    #[inline]
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    #[inline]
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Whether operation `number` can be one of it: a lineage has room for so many.
    #[inline]
    pub(crate) fn reaches(&self, number: u64) -> bool {
        number - self.base <= u64::from(u32::MAX)
    }

    /// Whether it is of the worker with this fate.
    pub(crate) fn is_of(&self, fate: &Arc<Fate>) -> bool {
        Arc::ptr_eq(&self.fate, fate)
    }

    /// After the enqueue of operation `number`, or an attempt. One thread at a time.
    #[inline]
    pub(crate) fn enqueue(&self, number: u64) {
        self.enqueued.store(number, Ordering::Release);
    }

    /// Whether its worker had failed before that of `later` was made.
    pub(crate) fn failed_before(&self, later: &Fate) -> bool {
        self.fate.end.get().is_some_and(|end| end.failure.is_some() && end.at < later.made)
    }

    /// Its failure, as `operation` meets it, which may come when its worker is long gone.
    fn tell(&self, failure: &Error, operation: &'static str) -> Error {
        let error = failure.met_by(operation);
        if self.worker.strong_count() > 0 {
            return error;
        }
        error.noted(
            "of an earlier communicator, which is gone: accept, of the stream or the buffer, goes on with what it has left",
        )
    }

    /// How its worker has ended, if it has.
    pub(crate) fn fate(&self) -> &Fate {
        &self.fate
    }

    /// The last operation that was enqueued.
    pub(crate) fn enqueued(&self) -> u64 {
        self.enqueued.load(Ordering::Acquire)
    }

    /// The last operation that somebody has found done and well.
    #[cfg(any(feature = "nccl", feature = "nvshmem"))]
    pub(crate) fn observed(&self) -> u64 {
        self.observed.load(Ordering::Acquire)
    }

    /// Whether nothing more can come of it, and all was well.
    pub(crate) fn is_closed(&self) -> bool {
        self.fate.is_closed()
    }

    /// Whether operation `number` was found done and well, so that nobody need ask again.
    pub(crate) fn is_settled(&self, number: u64) -> bool {
        number <= self.observed.load(Ordering::Acquire) || self.is_closed()
    }

    /// Whether operation `number` is known to have failed.
    pub(crate) fn has_failed(&self, number: u64) -> bool {
        !self.is_settled(number) && self.fate.failure().is_some()
    }
}

/// Of two operations of one work, the later one, and whether what has both as origins comes after it.
pub(super) fn later(one: (u64, bool), other: (u64, bool)) -> (u64, bool) {
    match one.0.cmp(&other.0) {
        std::cmp::Ordering::Less => other,
        std::cmp::Ordering::Equal => (one.0, one.1 || other.1),
        std::cmp::Ordering::Greater => one,
    }
}

/// An operation that something comes from, and all earlier ones of its work.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) work: Arc<Work>,
    pub(crate) number: u64,
    /// See [`Origin::follows`].
    follows: bool,
}

impl Origin {
    /// Whether what has this origin comes after it in the order of streams. A use of other bytes of the same allocation need not.
    pub(crate) fn follows(&self) -> bool {
        self.follows
    }

    /// Whether it was found done and well, so that nobody need ask again.
    pub(crate) fn is_settled(&self) -> bool {
        self.work.is_settled(self.number)
    }

    /// Whether it is known to have failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.work.has_failed(self.number)
    }

    /// Whether it went well, asked by `operation` after the device was found done with what has it.
    fn judge(&self, operation: &'static str) -> Result<()> {
        if self.is_settled() {
            return Ok(());
        }
        let work = &self.work;
        if let Some(error) = work.fate.failure() {
            return Err(work.tell(error, operation));
        }
        match work.worker.upgrade() {
            Some(worker) => worker.health().map_err(|error| error.met_by(operation))?,
            // It wrote down its end before it went.
            None if work.is_closed() => return Ok(()),
            None => {
                let gone = Error::Aborted { operation, reason: "its communicator is gone".into() };
                return Err(work.fate.failure().map_or(gone, |error| work.tell(error, operation)));
            }
        }
        if self.follows {
            work.observed.fetch_max(self.number, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Whether it has failed, and others may still write what it would have written.
    pub(crate) fn lingers(&self) -> bool {
        let work = &self.work;
        work.fate.is_fresh_failure() && !self.is_settled() && work.worker.upgrade().is_some_and(|it| !it.has_left())
    }

    /// Looks whether there is still hope that it comes to its end.
    fn look_around(&self) {
        if !self.is_settled()
            && let Some(worker) = self.work.worker.upgrade()
        {
            worker.look_around(self.work.observed.load(Ordering::Acquire), self.number);
        }
    }

    /// What it waits for, if somebody knows.
    fn pending(&self) -> Option<String> {
        if self.is_settled() {
            return None;
        }
        let done = self.work.observed.load(Ordering::Acquire);
        self.work.worker.upgrade()?.pending(done, self.number)
    }

    /// Which rank waits, and for which one; `None` if it is done or its worker is gone.
    fn between(&self) -> Option<(Option<usize>, Option<usize>)> {
        if self.is_settled() {
            return None;
        }
        let done = self.work.observed.load(Ordering::Acquire);
        Some(self.work.worker.upgrade()?.between(done, self.number))
    }
}

/// The operations that something comes from, each work once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origins(SmallVec<[Origin; 2]>);

impl Origins {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Origin> {
        self.0.iter()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// All was overwritten: what remains is what others may overwrite again.
    pub(crate) fn overwrite(&mut self) {
        self.0.retain(|one| one.lingers());
    }

    /// The only one, if there is one.
    pub(crate) fn single(&mut self) -> Option<&mut Origin> {
        match self.0.as_mut_slice() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Adds one that comes before; of a work that is there, the later number counts.
    pub(crate) fn add(&mut self, work: &Arc<Work>, number: u64) {
        self.add_one(work, number, true);
    }

    /// Adds one that [follows](Origin::follows) or does not.
    pub(super) fn add_one(&mut self, work: &Arc<Work>, number: u64, follows: bool) {
        self.0.retain(|one| Arc::ptr_eq(&one.work, work) || !one.is_settled());
        match self.0.iter_mut().find(|one| Arc::ptr_eq(&one.work, work)) {
            Some(one) => (one.number, one.follows) = later((one.number, one.follows), (number, follows)),
            None => self.0.push(Origin { work: Arc::clone(work), number, follows }),
        }
    }

    /// What has these origins need not come after them.
    #[cold]
    pub(crate) fn follow_nothing(&mut self) {
        self.0.iter_mut().for_each(|one| one.follows = false);
    }

    /// Adds those that are not settled.
    pub(crate) fn merge(&mut self, others: &Self) {
        others.iter().filter(|one| !one.is_settled()).for_each(|one| self.add_one(&one.work, one.number, one.follows));
    }

    /// Asks all of them, after the device was found done with them: the first failure, as one of `operation`.
    pub(crate) fn judge(&self, operation: &'static str) -> Result<()> {
        // All are asked, so that what was well is known to be, whatever else failed.
        let mut result = Ok(());
        for one in self.iter() {
            result = result.and(one.judge(operation));
        }
        result
    }

    /// As [`Origins::judge`]; tells of a failure when nothing writes any more that comes of it, or at the deadline.
    pub(crate) fn judge_within(&self, operation: &'static str, deadline: &Deadline) -> Result<()> {
        self.judge(operation).inspect_err(|_| self.wait_until_gone(deadline))
    }

    /// Waits until nothing writes any more that comes of failures, no longer than the deadline.
    #[cold]
    pub(crate) fn wait_until_gone(&self, deadline: &Deadline) {
        let mut round = 0;
        // A host function keeps its stream waiting, and so perhaps what it would wait for.
        while self.linger() && !deadline.expired() && !is_off_limits() {
            backoff(round);
            round += 1;
        }
    }

    /// Whether any of them has failed, and others may still write what it would have written.
    pub(crate) fn linger(&self) -> bool {
        self.iter().any(Origin::lingers)
    }

    /// A wait for them, on whatever stream, has ended with `error`. If that was too late, no drop
    /// waits as long again for the streams of those that are not done.
    #[cold]
    pub(crate) fn give_up(&self, error: &Error) {
        let left = self.iter().filter(|one| !one.is_settled());
        let streams = left.filter_map(|one| one.work.stream.as_ref()?.upgrade());
        streams.for_each(|stream| stream.give_up(error));
    }

    /// While the device is not done with them: ends those that can never come to their ends.
    pub(crate) fn look_around(&self) {
        self.iter().for_each(Origin::look_around);
    }

    /// What they wait for, as the end of a sentence; empty where nobody knows.
    pub(crate) fn pending(&self) -> String {
        self.iter().filter_map(Origin::pending).map(|text| format!("; {text}")).collect()
    }

    /// Which rank waits for them, and for which one, as far as it is known. If several communicators wait, the first one counts.
    pub(crate) fn between(&self) -> (Option<usize>, Option<usize>) {
        self.iter().find_map(Origin::between).unwrap_or_default()
    }
}

#[cfg(all(test, gpucomm_emulator))]
#[path = "work_tests.rs"]
mod tests;

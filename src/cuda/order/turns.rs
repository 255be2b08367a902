//! Turns at memory that graphs use.
//!
//! What an operation uses is ordered, the operation is enqueued, and then it is noted. In between, a borrow keeps others from whatever conflicts
//! with it; but a graph is launched without a borrow of its memory. So whoever uses memory that is in a graph does all three in a turn,
//! which one thread has at a time.

use std::ptr;
use std::time::Duration;

use smallvec::SmallVec;

use super::lanes::Tracker;
use super::stream::Stream;
use super::turn::Held;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// The turns of one operation, at those parts of its memory that are in graphs.
#[must_use]
#[derive(Default)]
pub(crate) struct Turns<'m>(SmallVec<[Held<'m>; 2]>);

impl Stream {
    /// The turns of `operation` on this stream, which waits no longer than `timeout` for other threads, nor when there is a `refusal`; none in
    /// a capture, where nothing is done yet. What this thread is in the middle of already, in the closure of a launch, its borrows keep in
    /// order.
    #[inline]
    pub(crate) fn turns<'m>(
        &self,
        operation: &'static str,
        timeout: impl FnOnce() -> Duration,
        refusal: impl Fn() -> Option<Error>,
        memory: impl IntoIterator<Item = &'m Tracker>,
    ) -> Result<Turns<'m>> {
        let mut shared = memory.into_iter().filter(|tracker| tracker.is_in_graphs());
        match shared.next() {
            Some(first) if !self.records() => {
                Turns::take(operation, timeout(), refusal, [first].into_iter().chain(shared).collect())
            }
            _ => Ok(Turns::default()),
        }
    }
}

impl<'m> Turns<'m> {
    #[cold]
    fn take(
        operation: &'static str,
        timeout: Duration,
        refusal: impl Fn() -> Option<Error>,
        mut memory: SmallVec<[&'m Tracker; 8]>,
    ) -> Result<Self> {
        // In one order for all threads, so that two of them cannot wait for each other.
        memory.sort_unstable_by_key(|tracker| ptr::from_ref(*tracker).addr());
        memory.dedup_by_key(|tracker| ptr::from_ref(*tracker).addr());
        let deadline = Deadline::after(timeout);
        let mut taken = SmallVec::with_capacity(memory.len());
        for turn in memory.into_iter().map(Tracker::turn).filter(|turn| !turn.is_mine()) {
            let held = match turn.try_take() {
                Some(held) => Some(held),
                None => deadline.until(|| refusal().map_or_else(|| Ok(turn.try_take()), Err))?,
            };
            let late = || {
                deadline.error(operation, "another thread, which is in the middle of an operation with the same memory")
            };
            taken.push(held.ok_or_else(late)?);
        }
        Ok(Self(taken))
    }

    /// Whether there are none: no graph uses the memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fails where this thread is in the middle of an operation with some of `memory`: it has lent that to a closure.
    pub(crate) fn check(operation: &'static str, memory: impl IntoIterator<Item = &'m Tracker>) -> Result<()> {
        if memory.into_iter().all(|tracker| !tracker.turn().is_mine()) {
            return Ok(());
        }
        let reason = "this is within the closure of Stream::launch, which is lent memory that the graph uses: launch the graph before or after";
        Err(Error::InvalidUsage { operation, reason: reason.to_owned() })
    }
}

//! Turns at memory that graphs use.
//!
//! What an operation uses is ordered, the operation is enqueued, and then it is noted, and where its bytes come from. In between, a borrow
//! keeps others from whatever conflicts with it; but a graph is launched without a borrow of its memory. So a launch does all of that while
//! nobody else uses the memory, and other operations, whose borrows keep them apart, do it while no graph is launched that does.

use std::cell::Cell;
use std::ptr;
use std::time::Duration;

use smallvec::SmallVec;

use super::lanes::Tracker;
use super::stream::Stream;
use super::turn::{Alone, Share, Turn};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::shared_deadline::SharedDeadline;

/// For so long others give way to a launch. No longer: who has the memory now may wait for them.
const WAY: Duration = Duration::from_millis(1);

thread_local! {
    /// How many closures this thread is in that were lent memory of graphs.
    static LENDS: Cell<usize> = const { Cell::new(0) };
}

/// The turns of one operation, at those parts of its memory that are in graphs.
#[must_use]
#[derive(Default)]
pub(crate) struct Turns<'m>(SmallVec<[Share<'m>; 2]>);

/// The turns of a launch.
#[must_use]
#[derive(Default)]
pub(crate) struct LaunchTurns<'m> {
    _taken: SmallVec<[Alone<'m>; 4]>,
}

/// That a closure runs which was lent memory of graphs.
pub(crate) struct Lends(bool);

/// Who waits for turns, and how long.
pub(crate) struct Waits<T, R> {
    pub(crate) operation: &'static str,
    pub(crate) timeout: T,
    /// Why it need not wait any more.
    pub(crate) refusal: R,
}

impl Stream {
    /// The turns of an operation on this stream; none in a capture, where nothing is done yet.
    #[inline]
    pub(crate) fn turns<'m>(
        &self,
        waits: Waits<impl FnOnce() -> Duration, impl Fn() -> Option<Error>>,
        memory: impl IntoIterator<Item = &'m Tracker>,
    ) -> Result<Turns<'m>> {
        if self.records() { Ok(Turns::default()) } else { Turns::of(waits, memory) }
    }
}

impl<'m> Turns<'m> {
    /// The turns of what is done with `memory`.
    #[inline]
    pub(crate) fn of(
        waits: Waits<impl FnOnce() -> Duration, impl Fn() -> Option<Error>>,
        memory: impl IntoIterator<Item = &'m Tracker>,
    ) -> Result<Self> {
        let mut shared = memory.into_iter().filter(|tracker| tracker.is_in_graphs());
        match shared.next() {
            Some(first) => Self::take(waits, [first].into_iter().chain(shared).collect()),
            None => Ok(Self::default()),
        }
    }

    #[cold]
    fn take(
        waits: Waits<impl FnOnce() -> Duration, impl Fn() -> Option<Error>>,
        memory: SmallVec<[&'m Tracker; 8]>,
    ) -> Result<Self> {
        let deadline = SharedDeadline::within((waits.timeout)());
        let mut taken = SmallVec::with_capacity(memory.len());
        for turn in unique(memory) {
            let way = Deadline::after(WAY);
            let take = || (!turn.is_awaited() || way.expired()).then(|| turn.try_share()).flatten();
            let held = match take() {
                Some(held) => Some(held),
                None => deadline.until(|| (waits.refusal)().map_or_else(|| Ok(take()), Err))?,
            };
            let late =
                || deadline.error(waits.operation, "another thread, which launches a graph with the same memory");
            taken.push(held.ok_or_else(late)?);
        }
        Ok(Self(taken))
    }

    /// Whether there are none: no graph uses the memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A closure runs which is lent this memory.
    pub(crate) fn lend(&self) -> Lends {
        let lends = !self.is_empty();
        LENDS.set(LENDS.get() + usize::from(lends));
        Lends(lends)
    }
}

impl Drop for Lends {
    fn drop(&mut self) {
        LENDS.set(LENDS.get() - usize::from(self.0));
    }
}

impl<'m> LaunchTurns<'m> {
    /// Those of a launch that uses `memory`: all of them, or none while it waits.
    pub(crate) fn take(
        waits: &Waits<impl Fn() -> Duration, impl Fn() -> Option<Error>>,
        memory: impl IntoIterator<Item = &'m Tracker>,
    ) -> Result<Self> {
        let turns = unique(memory.into_iter().collect());
        let take =
            || turns.iter().map(|turn| turn.try_alone()).collect::<Option<_>>().map(|taken| Self { _taken: taken });
        if let Some(taken) = take() {
            return Ok(taken);
        }
        let _awaiting: SmallVec<[_; 8]> = turns.iter().map(|turn| turn.awaiting()).collect();
        let deadline = SharedDeadline::within((waits.timeout)());
        let taken = deadline.until(|| (waits.refusal)().map_or_else(|| Ok(take()), Err))?;
        let late = || {
            deadline
                .error(waits.operation, "another thread, which is in the middle of an operation with the same memory")
        };
        taken.ok_or_else(late)
    }
}

fn unique(mut memory: SmallVec<[&Tracker; 8]>) -> SmallVec<[&Turn; 8]> {
    memory.sort_unstable_by_key(|tracker| ptr::from_ref(*tracker).addr());
    memory.dedup_by_key(|tracker| ptr::from_ref(*tracker).addr());
    memory.into_iter().map(Tracker::turn).collect()
}

/// Refuses what waits for other threads, or ranks, within a closure that was lent memory of graphs: they may wait for that.
#[inline]
pub(crate) fn outside_of_lending(operation: &'static str) -> Result<()> {
    if LENDS.get() == 0 { Ok(()) } else { Err(within(operation)) }
}

#[cold]
fn within(operation: &'static str) -> Error {
    let reason = "this is within the closure of Stream::launch, or of a scope of transfers, which is lent memory that a graph uses, and may keep others waiting: \
                  do it before or after";
    Error::InvalidUsage { operation, reason: reason.to_owned() }
}

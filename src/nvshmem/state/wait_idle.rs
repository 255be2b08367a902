//! Waits, before a call on the host, until streams are done with its memory.

use std::cell::Cell;
use std::time::Duration;

use super::inner::Inner;
use super::order::Order;
use super::wait_state::Awaited;
use super::waiting::Waiting;
use crate::cuda::{Access, Lends, Turns, Used, Waits, last_timeout};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::shared_deadline::SharedDeadline;

/// How long work of this PE's device is waited for after another PE has ended, if it is not known to wait for other PEs.
const UNKNOWN: Duration = Duration::from_secs(5);

/// How long work is waited for that was waited for in vain before.
const AGAIN: Duration = Duration::from_millis(100);

/// Memory, or an order, with which no stream does anything that conflicts, and no graph is launched that uses it, for as long as this is there.
#[must_use]
pub(crate) struct IdleGuard<'m> {
    turns: Turns<'m>,
}

impl IdleGuard<'_> {
    /// Whether it keeps anybody from anything.
    pub(crate) fn is_held(&self) -> bool {
        !self.turns.is_empty()
    }

    /// A closure of the user's runs meanwhile, on this thread: a launch of such a graph there would wait for its own end.
    pub(crate) fn lend(&self) -> Lends {
        self.turns.lend()
    }
}

/// The end of another PE, as a wait for work of this PE's device meets it.
#[derive(Default)]
pub(super) struct Death(Cell<Option<Deadline>>);

impl Death {
    /// Returns the error if the wait ends because of it.
    pub(super) fn ends(&self, inner: &Inner, waiting: &Waiting<'_>) -> Option<Error> {
        let error = waiting.departure_error()?;
        let patience = self.0.take().unwrap_or_else(|| Deadline::after(UNKNOWN));
        let ends = patience.expired() || inner.waits_for_pes();
        self.0.set(Some(patience));
        ends.then_some(error)
    }
}

impl Inner {
    /// Waits, for no longer than the timeout, until `memory` can be used on the host.
    pub(crate) fn wait_idle<'m, const N: usize>(
        &self,
        operation: &'static str,
        memory: [(&'m dyn Used, Access); N],
    ) -> Result<IdleGuard<'m>> {
        let _waits = SharedDeadline::begin();
        let waits = Waits { operation, timeout: || self.timeout, refusal: || None };
        let turns = Turns::of(waits, memory.iter().map(|(used, _)| used.tracker()))?;
        for (used, access) in memory {
            let over = || match access {
                Access::Read => used.tracker().is_written(),
                Access::Write => used.tracker().is_done(),
            };
            if !over()? {
                let what = "work on streams that uses the same memory";
                self.poll_local(operation, &SharedDeadline::within(self.timeout), what, over)?;
            }
        }
        Ok(IdleGuard { turns })
    }

    /// Waits until nothing is under way on the streams of the library itself: a call on the host would come after it, and wait within the library.
    pub(crate) fn wait_idle_beside(&self, operation: &'static str) -> Result<IdleGuard<'_>> {
        self.wait_idle_order(operation, &self.beside, None, "transfers of a scope on a stream")
    }

    /// Waits until nothing is under way that PEs do together on streams of this one.
    pub(crate) fn wait_idle_world(&self, operation: &'static str) -> Result<IdleGuard<'_>> {
        let what = "what all PEs do together, on a stream of this PE";
        self.wait_idle_order(operation, &self.world, Some(&Awaited::All), what)
    }

    /// Waits until nothing is under way that has a place in `order`. `awaited` are the PEs that have to come to the call behind
    /// it; `None` if it needs no other PE.
    pub(crate) fn wait_idle_order<'o>(
        &self,
        operation: &'static str,
        order: &'o Order,
        awaited: Option<&Awaited>,
        what: &str,
    ) -> Result<IdleGuard<'o>> {
        let _waits = SharedDeadline::begin();
        let waits = Waits { operation, timeout: || self.timeout, refusal: || None };
        let turns = Turns::of(waits, [order.tracker()])?;
        if !order.is_done()? {
            let deadline = SharedDeadline::within(self.timeout);
            match awaited {
                Some(awaited) => self.poll(operation, &deadline, awaited, what, || order.is_done())?,
                None => self.poll_local(operation, &deadline, what, || order.is_done())?,
            }
        }
        Ok(IdleGuard { turns })
    }

    /// Waits until `done`, before a call to which these PEs have to come. The wait ends if one of them has ended.
    pub(crate) fn poll(
        &self,
        operation: &'static str,
        deadline: &Deadline,
        awaited: &Awaited,
        what: &str,
        mut done: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        self.watchdog.during_wait(operation, self.timeout, awaited, |waiting| {
            deadline.poll(operation, || what.to_owned(), || waiting.departure_error().map_or_else(&mut done, Err))
        })
    }

    /// Waits until `done`, for work of this PE's device. The end of another PE makes this an error at once while something here is
    /// known to wait for other PEs, and after [`UNKNOWN`] otherwise.
    pub(crate) fn poll_local(
        &self,
        operation: &'static str,
        deadline: &Deadline,
        what: &str,
        mut done: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let death = Death::default();
        self.watchdog.during_wait(operation, self.timeout, &Awaited::All, |waiting| {
            deadline.poll(operation, || what.to_owned(), || death.ends(self, waiting).map_or_else(&mut done, Err))
        })
    }

    /// Returns true if work on streams of this PE is known to wait for other PEs: waits for signals or values, and operations of
    /// teams. What kernels of users and operations of NCCL wait for is not known.
    fn waits_for_pes(&self) -> bool {
        let is_done = || Ok::<_, Error>(self.waits.is_done()? && self.world.is_done()? && self.teams.are_done()?);
        !is_done().unwrap_or(false)
    }

    /// The deadline of a wait for work of the device, and for nobody else, which may be given up early. Where somebody has waited for some
    /// of it in vain, that counts; where that was a moment ago, it is not waited for again.
    pub(crate) fn deadline_of_work(&self, deadline: &Deadline) -> Deadline {
        let again = if self.left.was_added_to() { Duration::ZERO } else { AGAIN };
        deadline.sooner(last_timeout(self.device).min(deadline.remaining().saturating_sub(again)))
    }

    /// As [`poll`](Self::poll), for work of the device. As long as a stream stands still for which somebody has waited in vain, that time
    /// counts.
    pub(crate) fn poll_work(
        &self,
        operation: &'static str,
        deadline: &Deadline,
        awaited: &Awaited,
        what: &str,
        mut done: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let again = Deadline::after(AGAIN);
        self.poll(operation, deadline, awaited, what, || {
            let is_done = done()?;
            if !is_done && again.expired() && deadline.sooner(last_timeout(self.device)).expired() {
                return Err(deadline.error(operation, what.to_owned()));
            }
            Ok(is_done)
        })
    }
}

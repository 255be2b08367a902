//! Visits to NCCL: calls on a rank, by one thread at a time.

use std::sync::atomic::Ordering;

use super::inner::Inner;
use super::recent::{NOWHERE, Record};
use crate::clock;
use crate::error::Result;
use crate::nccl::raw::handle::Handle;

impl Inner {
    /// Whether no thread is inside NCCL, or about to be.
    pub(crate) fn is_left(&self) -> bool {
        self.gate.is_empty()
    }

    /// A number that changes with each visit. Odd during one.
    pub(crate) fn visit(&self) -> u64 {
        self.gate.visit()
    }

    /// What the visit that is under way is for, mostly a method, and since when.
    pub(crate) fn visitor(&self) -> Option<(&'static str, u64)> {
        self.gate.visitor()
    }

    /// The lower bits of the number of the next visit. The caller holds the lock.
    #[inline]
    pub(crate) fn next_visit(&self) -> u16 {
        (self.gate.visit() as u16).wrapping_add(1)
    }

    /// The record of an operation with this head and count, alone and compared with nobody, which NCCL is given in the next visit.
    /// The caller holds the lock.
    #[inline]
    pub(crate) fn record(
        &self,
        number: u64,
        (head, count): (u64, u64),
        operation: &'static str,
        stream: u64,
    ) -> Record {
        let (when, visit) = (clock::tick(), self.next_visit());
        Record { number, head, count, agreed: NOWHERE, sequence: 0, operation, when, stream, visit, joined: false }
    }

    /// Notes that visit number `visit` takes so long that it counts as blocked.
    pub(crate) fn set_stuck(&self, visit: u64) {
        self.stuck.store(visit, Ordering::Relaxed);
    }

    /// Whether the visit that is under way counts as blocked.
    pub(crate) fn is_stuck(&self) -> bool {
        let visit = self.visit();
        visit % 2 == 1 && visit == self.stuck.load(Ordering::Relaxed)
    }

    /// Runs `call`, which enters NCCL, as a visit. Meanwhile the handle is live, and the watchdog
    /// sees how long it takes. The caller holds the lock.
    ///
    /// # Errors
    /// Why the communicator has ended; `call` has not run then.
    #[inline]
    pub(crate) fn inside<R>(&self, operation: &'static str, call: impl FnOnce() -> R) -> Result<R> {
        self.inside_since(operation, clock::tick(), call)
    }

    /// The same, for a caller that knows the time.
    #[inline]
    pub(crate) fn inside_since<R>(&self, operation: &'static str, now: u64, call: impl FnOnce() -> R) -> Result<R> {
        self.begin_visit_at(operation, now)?;
        let result = call();
        self.end_visit();
        Ok(result)
    }

    /// Begins a visit, before calls that enter NCCL. The caller holds the lock, and ends the visit
    /// if it has begun.
    #[inline]
    pub(crate) fn begin_visit(&self, operation: &'static str) -> Result<()> {
        self.begin_visit_at(operation, clock::tick())
    }

    #[inline]
    fn begin_visit_at(&self, operation: &'static str, now: u64) -> Result<()> {
        if self.gate.begin_visit(operation, now) { Ok(()) } else { Err(self.dead(operation)) }
    }

    /// Ends a visit.
    #[inline]
    pub(crate) fn end_visit(&self) {
        self.gate.end_visit();
    }

    /// Promises visits to the thread that holds the lock, even if the rank is aborted before they
    /// begin. Returns false if it was before.
    pub(crate) fn promise(&self) -> bool {
        self.gate.promise()
    }

    /// The same, also for a revoked rank: for threads that make other communicators of it.
    pub(crate) fn promise_division(&self) -> bool {
        if self.gate.promise() {
            return true;
        }
        self.gate.promise_though_shut();
        // A thread that ends it changes its state before it looks whether the gate is empty: one of
        // the two sees the other.
        let fit = self.has_stopped() && self.is_revoked();
        if !fit {
            self.gate.redeem();
        }
        fit
    }

    /// Takes a promise back: its visits are over, or will not be made.
    pub(crate) fn redeem(&self) {
        self.gate.redeem();
    }

    /// Breaks the promises of threads that have not begun a visit: the communicator is aborted or revoked.
    pub(crate) fn break_promises(&self) {
        self.gate.break_promises();
    }

    /// Runs `ask` on the live handle, without the lock, beside calls of other threads. `None` if
    /// the gate is shut. `ask` must not block.
    pub(crate) fn beside<R>(&self, ask: impl FnOnce(Handle) -> R) -> Option<R> {
        self.gate.beside(|| ask(self.handle()))
    }
}

//! How a rank changes its state. Each change to an end has one winner, the thread that then carries
//! it out; see `lifecycle`.

use std::sync::atomic::Ordering;

use super::inner::Inner;
use super::state::{AbortedBy, CommState};
use crate::error::Error;

impl Inner {
    pub(crate) fn state(&self) -> CommState {
        self.state.state()
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.state.is_active()
    }

    /// Marks it aborted. Returns true for the one caller that must then end it. From now on no
    /// thread enters NCCL.
    pub(crate) fn mark_aborted(&self, cause: Error, by: AbortedBy) -> bool {
        let first = self.state.mark_aborted(cause.about(self.name.subject()), by);
        if first {
            self.shut_with_cause();
        }
        first
    }

    /// Marks it revoked. Returns true for the one caller that must then stop it. From now on only
    /// threads that make other communicators of it enter NCCL.
    pub(crate) fn mark_revoked(&self, cause: Error) -> bool {
        let first = self.state.mark_revoked(cause.about(self.name.subject()));
        if first {
            self.shut_with_cause();
        }
        first
    }

    fn shut_with_cause(&self) {
        self.gate.shut();
        self.state.cause().into_iter().for_each(|cause| self.fate.fail(cause.later("wait").about(self.name.subject())));
    }

    /// Marks it closed. Returns true for the one caller that must then destroy it. From now on no
    /// thread enters NCCL. Its work is done, and NCCL was asked for errors after that.
    pub(crate) fn mark_closing(&self) -> bool {
        let first = self.state.mark_closing();
        if first {
            self.gate.shut();
            self.fate.close();
        }
        first
    }

    /// Marks it freed by NCCL.
    pub(crate) fn mark_freed(&self) {
        if self.state.mark_ended() {
            self.trace_end();
            self.local_ranks.remove(self);
        }
    }

    /// Marks it suspended because of `reason`. Returns false if it was not active. The caller holds
    /// the lock, and its work is done.
    #[cfg_attr(not(nccl_ge_2_29_7), allow(dead_code))]
    pub(crate) fn suspend(&self, reason: &str) -> bool {
        self.state.suspend(reason)
    }

    /// Marks it active again. Returns false if it has ended meanwhile. The caller holds the lock.
    #[cfg_attr(not(nccl_ge_2_29_7), allow(dead_code))]
    pub(crate) fn resume(&self) -> bool {
        self.state.resume()
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.state.is_suspended()
    }

    /// Whether it was revoked, and has not been ended since.
    pub(crate) fn is_revoked(&self) -> bool {
        self.state.is_revoked()
    }

    /// Whether it was revoked before it ended.
    pub(crate) fn was_revoked(&self) -> bool {
        self.state.was_revoked()
    }

    /// Whether nobody has aborted or closed it.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self.state(), CommState::Active | CommState::Revoked | CommState::Suspended)
    }

    /// It was revoked, and so has left the device. NCCL frees it some time later.
    pub(crate) fn set_stopped(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Whether it writes nowhere any more, though NCCL may not have freed it.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Notes that `ncclCommRevoke` is called.
    #[cfg_attr(not(nccl_ge_2_28_7), allow(dead_code))]
    pub(crate) fn set_revoked_in_nccl(&self) {
        self.revoked_in_nccl.store(true, Ordering::Release);
    }

    /// Whether `ncclCommRevoke` was called.
    pub(crate) fn was_revoked_in_nccl(&self) -> bool {
        self.revoked_in_nccl.load(Ordering::Acquire)
    }

    /// Whether NCCL has freed this rank.
    pub(crate) fn has_ended(&self) -> bool {
        self.state().is_ended()
    }

    /// Whether NCCL has freed all ranks of the communicator in this process. Then nothing of it
    /// uses memory, and its windows are gone.
    pub(crate) fn are_all_freed(&self) -> bool {
        self.local_ranks.are_freed()
    }

    /// Whether it was closed, and NCCL keeps it until the communicators have ended that share its
    /// resources.
    pub(crate) fn waits_for_sharers(&self) -> bool {
        self.state() == CommState::Closing && self.local_ranks.teardown().is_waiting(self)
    }
}

/// Errors for callers that come too late.
impl Inner {
    /// Names it in a sentence: see [`Name::rank`](crate::name::Name::rank).
    pub(crate) fn in_words(&self) -> String {
        self.name.rank(self.rank)
    }

    /// Why it is aborted or revoked; `None` while it is neither.
    pub(crate) fn cause(&self) -> Option<&Error> {
        self.state.cause()
    }

    /// Who has aborted it; `None` while it is not aborted.
    pub(crate) fn aborted_by(&self) -> Option<AbortedBy> {
        self.state.aborted_by()
    }

    /// Why nothing can be done with it, as an error of `operation`; `None` while it is active.
    pub(crate) fn refusal(&self, operation: &'static str) -> Option<Error> {
        Some(self.state.refusal(operation)?.about(self.name.subject()))
    }

    /// The same, for a rank that is known not to be active.
    #[cold]
    pub(crate) fn dead(&self, operation: &'static str) -> Error {
        self.refusal(operation).unwrap_or(Error::Aborted { operation, reason: "unknown".into() })
    }

    /// Why it has ended or is about to, as an error of `operation`; `None` while it is active,
    /// suspended or revoked.
    pub(crate) fn ended_error(&self, operation: &'static str) -> Option<Error> {
        (!self.is_alive()).then(|| self.dead(operation))
    }

    /// Why other communicators cannot be made of it now, nor it be revoked, as an error of
    /// `operation`; `None` if it is not suspended.
    pub(crate) fn suspended_error(&self, operation: &'static str) -> Option<Error> {
        self.is_suspended().then(|| self.dead(operation))
    }

    /// Why it cannot be resumed, as an error of `operation`; `None` if it is suspended.
    #[cfg_attr(not(nccl_ge_2_29_7), allow(dead_code))]
    pub(crate) fn not_suspended_error(&self, operation: &'static str) -> Option<Error> {
        let not_suspended = || Error::InvalidUsage { operation, reason: "the communicator is not suspended".into() };
        (!self.is_suspended()).then(|| self.refusal(operation).unwrap_or_else(not_suspended))
    }

    /// The error of `operation`, a call that did not come back from NCCL in time, so that the
    /// watchdog has ended the communicator.
    pub(crate) fn stayed_inside(&self, operation: &'static str) -> Option<Error> {
        (self.aborted_by() == Some(AbortedBy::Watchdog)).then(|| self.cause().map(|cause| cause.met_by(operation)))?
    }
}

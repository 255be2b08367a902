//! Asks whether a communicator has failed, for threads that wait for its work.
//!
//! Every wait asks NCCL for an asynchronous error before it returns `Ok`. It must not take the lock
//! of the rank for that: a thread that waits inside NCCL for a peer holds it.
//! `ncclCommGetAsyncError` reads only fields of a blocking communicator that are atomic or do not
//! change until the end. So it may be called at any time until then, and the end waits for it: see
//! [`Gate`](crate::nccl::rank::gate::Gate).

use std::sync::{Arc, Weak};

use super::abort::abort_clique;
use crate::cuda::{Work, Worker};
use crate::error::{Error, Result};
use crate::nccl::flight::files::Trouble;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::state::CommState;
use crate::nccl::raw::check::check;
use crate::nccl::raw::handle::Handle;
use crate::nccl::raw::warnings::said;
use crate::nccl::validate::validator::Validator;
use crate::nccl::wait::explanation;
use crate::sys;

impl Inner {
    /// Begins a work of this communicator, whose operations come after number `base`.
    pub(crate) fn new_work(&self, base: u64) -> Work {
        let me: Weak<dyn Worker> = self.me().clone();
        Work::new(me, Arc::clone(self.fate()), base)
    }

    /// Wraps `ncclCommGetAsyncError`, without the lock. `None` if the communicator has ended or is
    /// about to.
    pub(crate) fn async_error(&self) -> Option<Result<()>> {
        // SAFETY: the gate has let this thread in, so the handle stays live.
        self.beside(|handle| unsafe { async_error(handle) })
    }

    /// The last warning of NCCL, for the error of a wait. `None` if there is none, or the
    /// communicator has ended or is about to.
    ///
    /// Leaves out a warning about a waiting communicator of a clique: the signatures says the same, and
    /// more.
    pub(crate) fn said(&self) -> Option<String> {
        let is_told = self.validation.in_process().is_some() && sys::behavior::LAST_ERROR_IS_OF_COMMUNICATOR;
        self.beside(|handle| (!is_told).then(|| said(handle)).flatten()).flatten()
    }
}

/// Wraps `ncclCommGetAsyncError`.
///
/// # Safety
/// The communicator is live, and nobody ends it meanwhile.
pub(crate) unsafe fn async_error(Handle(raw): Handle) -> Result<()> {
    const FUNCTION: &str = "ncclCommGetAsyncError";
    let mut state = sys::ncclResult_t::ncclSuccess;
    // SAFETY: a live communicator, as the caller promises, and a place for the answer.
    check(FUNCTION, unsafe { sys::ncclCommGetAsyncError(raw, &mut state) })?;
    check(FUNCTION, state)
}

/// Whether the communicator is being closed, or was.
fn is_closing(inner: &Inner) -> bool {
    matches!(inner.state(), CommState::Closing | CommState::Closed)
}

impl Worker for Inner {
    fn health(&self) -> Result<()> {
        match self.async_error() {
            Some(Err(error)) => {
                abort_clique(self, &error);
                Err(error)
            }
            // A communicator that is closed or suspended was asked after its work was done.
            _ if self.is_active() || self.is_suspended() || is_closing(self) => Ok(()),
            _ => Err(self.dead("wait")),
        }
    }

    fn has_left(&self) -> bool {
        // All ranks of this process, which are aborted together: the abort of one returns before
        // its kernel has left, unless it is the last.
        self.are_all_freed() || self.local_ranks.ranks().iter().all(|inner| inner.has_ended() || inner.has_stopped())
    }

    fn between(&self, done: u64, last: u64) -> (Option<usize>, Option<usize>) {
        (Some(self.rank), explanation::awaited(self, (done + 1)..=last))
    }

    fn look_around(&self, done: u64, last: u64) {
        if let Some(error) = self.validation.departure_error(self, done, last) {
            abort_clique(self, &error);
        }
    }

    fn pending(&self, done: u64, last: u64) -> Option<String> {
        let state = match self.refusal("wait") {
            None | Some(Error::Suspended { .. }) => explanation::waits(self, done, last),
            Some(Error::Aborted { reason: why, .. } | Error::Revoked { reason: why, .. }) => {
                Some(format!("{} is being stopped: {why}", self.in_words()))
            }
            Some(error) => Some(format!("{} is being stopped: {error}", self.in_words())),
        };
        // A wait has timed out.
        Trouble::of([(self, "a wait took too long")]).write();
        let all: Vec<_> = state.into_iter().chain(self.said()).collect();
        (!all.is_empty()).then(|| all.join("; ") + explanation::advice(self))
    }
}

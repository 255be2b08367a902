//! How a communicator is, for those who wait for its work.
//!
//! Every wait asks NCCL for an asynchronous error before it says that all is well. It must not take the communicator's lock
//! for that: a thread that waits inside NCCL for a peer holds it. What `ncclCommGetAsyncError` reads of a blocking
//! communicator is atomic or stays as it is until the end, so it may be asked at any time until then; and the end waits
//! for those who ask, see [`Gate`](crate::nccl::state::gate::Gate).

use std::sync::{Arc, Weak};

use super::abort::end;
use crate::cuda::{Work, Worker};
use crate::error::{Error, Result};
use crate::nccl::flight::files::Trouble;
use crate::nccl::raw::check::check;
use crate::nccl::raw::handle::Handle;
use crate::nccl::raw::warnings::said;
use crate::nccl::state::inner::Inner;
use crate::nccl::state::standing::State;
use crate::nccl::wait::departure;
use crate::nccl::wait::needed;
use crate::nccl::wait::pending;
use crate::sys;

impl Inner {
    /// A work of this communicator, whose operations come after number `base`.
    pub(crate) fn new_work(&self, base: u64) -> Work {
        let me: Weak<dyn Worker> = self.me().clone();
        Work::new(me, Arc::clone(self.fate()), base)
    }

    /// Wraps `ncclCommGetAsyncError`, without the lock; `None` if the communicator has come to its end.
    pub(crate) fn async_error(&self) -> Option<Result<()>> {
        // SAFETY: the gate has let this thread in, so the handle stays live.
        self.beside(|handle| unsafe { async_error(handle) })
    }

    /// What NCCL has said since all was well, for the error of a wait; `None` where that is nothing, or the communicator has come to its end.
    ///
    /// Leaves out what the library says about a waiting communicator of a clique: the ledger says the same, and more.
    pub(crate) fn said(&self) -> Option<String> {
        let is_told = self.family.is_some() && sys::behavior::LAST_ERROR_IS_OF_COMMUNICATOR;
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
    matches!(inner.state(), State::Closing | State::Closed)
}

impl Worker for Inner {
    fn health(&self) -> Result<()> {
        match self.async_error() {
            Some(Err(error)) => {
                end(self, &error);
                Err(error)
            }
            // One that is being closed, or is suspended, was asked after its work was done.
            _ if self.is_active() || self.is_suspended() || is_closing(self) => Ok(()),
            _ => Err(self.dead("wait")),
        }
    }

    fn has_left(&self) -> bool {
        // All ranks of this process, which are aborted together: the abort of one returns before its kernel has left, unless it is
        // the last.
        self.is_gone() || self.household.members().iter().all(|inner| inner.has_ended() || inner.has_stopped())
    }

    fn look_around(&self, done: u64, last: u64) {
        let needs = |rank| needed::on_device(self, rank, done, last);
        let dead = || self.checked.get().and_then(|checked| checked.in_vain(needs));
        departure::on_device(self, done, last).or_else(dead).into_iter().for_each(|error| end(self, &error));
    }

    fn pending(&self, done: u64, last: u64) -> Option<String> {
        let rank = || format!("rank {}{}", self.rank, pending::of_part(self));
        let told = match self.refusal("wait") {
            None | Some(Error::Suspended { .. }) => pending::waits(self, done, last),
            Some(Error::Aborted { reason: why, .. } | Error::Revoked { reason: why, .. }) => {
                Some(format!("{} is being stopped: {why}", rank()))
            }
            Some(error) => Some(format!("{} is being stopped: {error}", rank())),
        };
        // Somebody has waited as long as it may.
        Trouble::of([(self, "a wait took too long")]).write();
        let told: Vec<_> = told.into_iter().chain(self.said()).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

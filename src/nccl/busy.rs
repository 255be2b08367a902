//! Waiting for another thread that is at the same communicator.

use super::gate::Locked;
use super::inner::{Guarded, Inner};
use super::pending;
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};

impl Inner {
    /// The lock, whatever the state.
    pub(crate) fn lock_within(&self, deadline: &Deadline) -> Option<Locked<'_, Guarded>> {
        let mut round = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            if deadline.expired() {
                return None;
            }
            backoff(round);
            round += 1;
        }
    }

    /// The lock, as long as the communicator is active.
    #[cold]
    pub(super) fn wait_for_lock(&self, operation: &'static str) -> Result<Locked<'_, Guarded>> {
        let deadline = Deadline::after(self.timeout());
        let mut round = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return Ok(guard);
            }
            if let Some(error) = self.refusal(operation) {
                return Err(error);
            }
            if deadline.expired() {
                return Err(busy(self, operation, &deadline));
            }
            backoff(round);
            round += 1;
        }
    }
}

/// Another thread has not left `inner` before the deadline.
#[cold]
pub(crate) fn busy(inner: &Inner, operation: &'static str, deadline: &Deadline) -> Error {
    let last = pending::came_last(inner).map(|told| format!("; {told}")).unwrap_or_default();
    let detail = format!("another thread is inside a call on the communicator of rank {}{last}", inner.rank);
    deadline.error(operation, detail)
}

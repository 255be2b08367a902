//! Waiting for another thread that is at the same communicator.

use super::gate::Locked;
use super::inner::{Guarded, Inner};
use super::pending;
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};

impl Inner {
    /// The lock, whatever the state.
    pub(crate) fn lock_within(&self, deadline: &Deadline) -> Option<Locked<'_, Guarded>> {
        self.poll_lock(deadline, || None).ok().flatten()
    }

    /// The lock, as long as the communicator is active.
    #[cold]
    pub(super) fn wait_for_lock(&self, operation: &'static str) -> Result<Locked<'_, Guarded>> {
        let deadline = Deadline::after(self.timeout());
        let locked = self.poll_lock(&deadline, || self.refusal(operation))?;
        locked.ok_or_else(|| busy(self, operation, &deadline))
    }

    /// The lock, unless this is `refused` meanwhile; `None` after the deadline.
    fn poll_lock(
        &self,
        deadline: &Deadline,
        refused: impl Fn() -> Option<Error>,
    ) -> Result<Option<Locked<'_, Guarded>>> {
        let mut round = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return Ok(Some(guard));
            }
            if let Some(error) = refused() {
                return Err(error);
            }
            if deadline.expired() {
                return Ok(None);
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

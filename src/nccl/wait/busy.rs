//! Waiting for another thread that is at the same communicator.

use super::pending;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::nccl::state::gate::Locked;
use crate::nccl::state::inner::{Guarded, Inner};

impl Inner {
    /// The lock, whatever the state.
    pub(crate) fn lock_within(&self, deadline: &Deadline) -> Option<Locked<'_, Guarded>> {
        deadline.until(|| Ok(self.try_lock())).ok().flatten()
    }

    /// The lock, as long as the communicator is active.
    #[cold]
    pub(crate) fn wait_for_lock(&self, operation: &'static str) -> Result<Locked<'_, Guarded>> {
        let deadline = Deadline::after(self.timeout());
        let locked = deadline.until(|| match self.try_lock() {
            None => self.refusal(operation).map_or(Ok(None), Err),
            locked => Ok(locked),
        })?;
        locked.ok_or_else(|| busy(self, operation, &deadline))
    }
}

/// Another thread has not left `inner` before the deadline.
#[cold]
pub(crate) fn busy(inner: &Inner, operation: &'static str, deadline: &Deadline) -> Error {
    let last = pending::came_last(inner).map(|told| format!("; {told}")).unwrap_or_default();
    let detail = format!("another thread is inside a call on the communicator of rank {}{last}", inner.rank);
    deadline.error(operation, detail)
}

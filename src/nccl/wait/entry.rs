//! The way to a communicator, and waiting for another thread that is at it.

use super::pending;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::nccl::state::gate::Locked;
use crate::nccl::state::inner::{Guarded, Inner};
use crate::sys;

impl Inner {
    /// The lock and the handle, for one operation; the handle is live during a visit only, see [`Inner::inside`].
    #[inline]
    pub(crate) fn enter(&self, operation: &'static str) -> Result<(Locked<'_, Guarded>, sys::ncclComm_t)> {
        let guard = match self.try_lock() {
            Some(guard) => guard,
            None => self.wait_for_lock(operation)?,
        };
        if !self.is_active() {
            return Err(self.dead(operation));
        }
        Ok((guard, self.handle().raw()))
    }

    /// As [`Inner::enter`], for who does not wait: `None` while another thread is at it, and where the communicator has ended.
    pub(crate) fn try_enter(&self) -> Option<(Locked<'_, Guarded>, sys::ncclComm_t)> {
        self.try_lock().filter(|_| self.is_active()).map(|guard| (guard, self.handle().raw()))
    }

    /// The lock, whatever the state.
    pub(crate) fn lock_within(&self, deadline: &Deadline) -> Option<Locked<'_, Guarded>> {
        deadline.until(|| Ok(self.try_lock())).ok().flatten()
    }

    /// The lock, as long as the communicator is active.
    #[cold]
    fn wait_for_lock(&self, operation: &'static str) -> Result<Locked<'_, Guarded>> {
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

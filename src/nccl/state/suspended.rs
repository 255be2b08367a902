//! Communicators that are suspended for a while.

use super::inner::Inner;
use crate::error::Error;

#[cfg_attr(not(nccl_ge_2_29_7), allow(dead_code))]
impl Inner {
    /// It is suspended, because of `reason`; false where it was active no more. The caller holds the lock, and its work is done.
    pub(crate) fn suspend(&self, reason: &str) -> bool {
        self.standing.suspend(reason)
    }

    /// It is active again; false where it has ended meanwhile. The caller holds the lock.
    pub(crate) fn resume(&self) -> bool {
        self.standing.resume()
    }

    /// Whether it is suspended.
    pub(crate) fn is_suspended(&self) -> bool {
        self.standing.is_suspended()
    }

    /// Why others cannot be made of it now, nor it be stopped, as an error of `operation`; `None` where it is not suspended.
    pub(crate) fn asleep(&self, operation: &'static str) -> Option<Error> {
        self.is_suspended().then(|| self.dead(operation))
    }

    /// Why it cannot be resumed, as an error of `operation`; `None` where it is suspended.
    pub(crate) fn awake(&self, operation: &'static str) -> Option<Error> {
        let not_suspended = || Error::InvalidUsage { operation, reason: "the communicator is not suspended".into() };
        (!self.is_suspended()).then(|| self.refusal(operation).unwrap_or_else(not_suspended))
    }
}

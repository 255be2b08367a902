//! The invitation by which a communicator grows next.

use crate::error::{Error, Result};
use crate::lock::{Mutex, MutexGuard};
use crate::nccl::setup::unique_id::UniqueId;

/// An invitation by which the communicator has not grown yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Open {
    /// The rank that has asked NCCL for the id.
    pub(crate) rank: usize,
    pub(crate) id: UniqueId,
    /// How many ranks are invited.
    pub(crate) more: usize,
    /// Whether all ranks have come to grow by it.
    pub(crate) begun: bool,
}

/// The open invitation of a communicator, if a rank of this process has made one. NCCL numbers the
/// communicators that it makes of another one, so at most one invitation is open, and nothing else
/// is made meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Growth(Mutex<Option<Open>>);

impl Growth {
    fn open(&self) -> MutexGuard<'_, Option<Open>> {
        self.0.lock()
    }

    /// The open invitation.
    pub(crate) fn get(&self) -> Option<Open> {
        *self.open()
    }

    /// Opens the invitation that `ask` makes.
    ///
    /// # Errors
    /// If another one is open; those of `ask`.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) fn invite(&self, operation: &'static str, ask: impl FnOnce() -> Result<Open>) -> Result<Open> {
        let mut open = self.open();
        self::refuse(operation, *open)?;
        let new = ask()?;
        *open = Some(new);
        Ok(new)
    }

    /// Returns an error if an invitation is open.
    pub(crate) fn refuse(&self, operation: &'static str) -> Result<()> {
        refuse(operation, self.get())
    }

    /// Records that all ranks have come to grow by the open invitation.
    pub(crate) fn begin(&self) {
        self.open().as_mut().into_iter().for_each(|open| open.begun = true);
    }

    /// Closes the invitation of `rank`, if it has made the open one: the communicator has grown.
    pub(crate) fn close(&self, rank: usize) {
        self.open().take_if(|open| open.rank == rank);
    }
}

fn refuse(operation: &'static str, open: Option<Open>) -> Result<()> {
    let Some(Open { rank, more, .. }) = open else { return Ok(()) };
    let reason = format!(
        "rank {rank} has invited {more} more: first all ranks have to grow the communicator by these, or, where it is revoked and cannot grow, to recover from that"
    );
    Err(Error::InvalidUsage { operation, reason })
}

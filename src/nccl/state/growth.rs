//! Who has invited others into a communicator that grows.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::nccl::setup::unique_id::UniqueId;

/// An invitation that nobody has grown the communicator by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Open {
    /// The rank that has asked NCCL for the id.
    pub(crate) rank: usize,
    pub(crate) id: UniqueId,
    /// How many ranks are to come.
    pub(crate) more: usize,
}

/// That of the ranks of this process.
#[derive(Debug, Default)]
pub(crate) struct Growth(Mutex<Option<Open>>);

impl Growth {
    fn open(&self) -> MutexGuard<'_, Option<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that is open.
    pub(crate) fn get(&self) -> Option<Open> {
        *self.open()
    }

    /// Opens one that `ask` makes.
    ///
    /// # Errors
    /// Where another one is open; those of `ask`.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) fn invite(&self, operation: &'static str, ask: impl FnOnce() -> Result<Open>) -> Result<Open> {
        let mut open = self.open();
        self::refuse(operation, *open)?;
        let new = ask()?;
        *open = Some(new);
        Ok(new)
    }

    /// Refuses what would have NCCL take an invitation for another one: NCCL numbers what is made of a communicator.
    pub(crate) fn refuse(&self, operation: &'static str) -> Result<()> {
        refuse(operation, self.get())
    }

    /// `rank` has grown the communicator, and so closes its invitation, if it has one.
    pub(crate) fn close(&self, rank: usize) {
        self.open().take_if(|open| open.rank == rank);
    }
}

fn refuse(operation: &'static str, open: Option<Open>) -> Result<()> {
    let Some(Open { rank, more, .. }) = open else { return Ok(()) };
    let reason = format!(
        "rank {rank} has invited {more} more: first all ranks have to grow the communicator by these, or to recover from that"
    );
    Err(Error::InvalidUsage { operation, reason })
}

//! A wait for other ranks of a clique, by a thread that holds the locks of its communicators.

use super::call::Call;
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};
use crate::nccl::state::inner::Inner;

/// How long a thread has waited.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    round: u32,
    deadline: Option<Deadline>,
}

/// Looks before the time and the communicators are asked for: what another rank is writing is there after eight stores.
const GLANCES: u32 = 100;

impl Patience {
    /// Waits a little, unless one of the communicators has ended, or waits `in_vain`, or the shortest of their timeouts is over;
    /// `detail` says what is waited for.
    #[cold]
    pub(crate) fn wait(
        &mut self,
        operation: &'static str,
        members: &[&Inner],
        in_vain: impl Fn(&Inner) -> Option<Error>,
        detail: impl FnOnce() -> String,
    ) -> Result<()> {
        self.round += 1;
        if self.round < GLANCES {
            std::hint::spin_loop();
            return Ok(());
        }
        self.look(operation, members, in_vain, detail)?;
        backoff(self.round - GLANCES);
        Ok(())
    }

    /// The same for a thread that has waited somewhere else.
    #[cold]
    pub(crate) fn look(
        &mut self,
        operation: &'static str,
        members: &[&Inner],
        in_vain: impl Fn(&Inner) -> Option<Error>,
        detail: impl FnOnce() -> String,
    ) -> Result<()> {
        let deadline = *self.deadline.get_or_insert_with(|| {
            Call::deadline(members.iter().map(|inner| inner.timeout()).min().unwrap_or_default())
        });
        if let Some(error) = members.iter().find_map(|inner| inner.refusal(operation)) {
            return Err(error);
        }
        if let Some(error) = members.iter().find_map(|inner| in_vain(inner)) {
            return Err(error);
        }
        if deadline.expired() {
            return Err(deadline.error(operation, detail()));
        }
        Ok(())
    }
}

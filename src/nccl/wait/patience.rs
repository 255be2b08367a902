//! Waits for other ranks while the thread holds the locks of its communicators.

use super::comparison::Comparison;
use super::explanation;
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};
use crate::nccl::rank::inner::Inner;
use crate::shared_deadline::SharedDeadline;
use crate::sys::behavior::DeadlockReport;

/// How long a thread has waited.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    round: u32,
    deadline: Option<Deadline>,
    comparison: Comparison,
    report: Option<DeadlockReport>,
}

/// How many rounds only spin, before the deadline and the communicators are checked. Another rank needs eight stores to write its entry.
const GLANCES: u32 = 100;

impl Patience {
    /// Waits a little, unless one of the communicators has ended, or waits in vain, or the shortest of their timeouts is over;
    /// `detail` says what `slow`, one of them, waits for.
    #[cold]
    pub(crate) fn wait(
        &mut self,
        operation: &'static str,
        members: &[&Inner],
        departed: impl Fn(&Inner) -> Option<Error>,
        slow: &Inner,
        detail: impl Fn() -> String,
    ) -> Result<()> {
        self.round += 1;
        if self.round < GLANCES {
            std::hint::spin_loop();
            return Ok(());
        }
        self.look(operation, members, departed, slow, detail)?;
        backoff(self.round - GLANCES);
        Ok(())
    }

    /// The same for a thread that has waited somewhere else.
    #[cold]
    pub(crate) fn look(
        &mut self,
        operation: &'static str,
        members: &[&Inner],
        departed: impl Fn(&Inner) -> Option<Error>,
        slow: &Inner,
        detail: impl Fn() -> String,
    ) -> Result<()> {
        let deadline = *self.deadline.get_or_insert_with(|| {
            SharedDeadline::within(members.iter().map(|inner| inner.timeout()).min().unwrap_or_default())
        });
        self.comparison.waits(slow, &detail);
        self.report.get_or_insert_with(DeadlockReport::new).check_sentence(&detail);
        let awaited = || explanation::awaited(slow, explanation::launch(slow));
        let late =
            || deadline.expired().then(|| deadline.error(operation, detail()).between((Some(slow.rank), awaited())));
        let refused = members.iter().find_map(|inner| inner.refusal(operation));
        let trouble = refused.or_else(|| members.iter().find_map(|inner| departed(inner))).or_else(late);
        trouble.map_or(Ok(()), |error| Err(self.comparison.failed(error)))
    }
}

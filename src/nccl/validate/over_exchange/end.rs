//! Records how a checked communicator ends. The first rank that writes the end decides it for all, and a
//! rank that closes its communicator says so.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use super::this_rank::{LAST, OverExchange};
use crate::error::{Error, Result};
use crate::exchange::farewell;
use crate::nccl::validate::ballot::Verdict;
use crate::nccl::validate::notes::{Ending, Leave, Note};
use crate::nccl::validate::presence::{self, Departure};

/// The key of the end of the communicator.
const END: &str = "end";

impl OverExchange {
    /// Ends the communicator because ranks disagree. Returns the error that every rank reports.
    #[cold]
    pub(crate) fn decide(&self, operation: &'static str, verdict: Verdict) -> Error {
        self.end(Ending::Disagreement(self.verdict(verdict))).error(operation, self.rank())
    }

    /// Returns the verdict that this process has reached first.
    pub(super) fn verdict(&self, verdict: Verdict) -> Verdict {
        self.ballot.decide(verdict).clone()
    }

    /// Records how the communicator ends, unless another rank has recorded that before. Returns what holds.
    pub(crate) fn end(&self, end: Ending) -> Ending {
        self.record_end(&end).ok().and_then(|bytes| Ending::decode(&bytes)).unwrap_or(end)
    }

    /// The same. Returns what the store holds.
    pub(crate) fn record_end(&self, end: &Ending) -> Result<Vec<u8>> {
        self.exchange("end")?.leave_first("end", END, &end.encode(), LAST)
    }

    /// Tells the listeners of the other ranks how this rank has ended, because of `cause`, and the ranks that wait for it to make
    /// another communicator. If the store does not answer, it is asked again.
    pub(crate) fn tell_end(&self, end: &Ending, cause: &Error) {
        // Keeps the exchange: a rank that has ended gives it up meanwhile.
        let Ok(exchange) = self.exchange("end") else { return };
        let _ = farewell::persist(|| exchange.leave_first("end", END, &end.encode(), LAST));
        self.leave_regroups(Leave::Ended(format!("nothing: it has ended there ({cause})")));
    }

    /// Waits up to `within` for the end of the communicator, and returns it. Returns `None` if the communicator goes on.
    pub(crate) fn ended(&self, within: Duration) -> Result<Option<Ending>> {
        Ok(self.exchange("end")?.note_of_any(END, within)?.and_then(|bytes| Ending::decode(&bytes)))
    }

    /// Tells the other ranks that this one is closed, and takes part in nothing more. Waits up to a
    /// second for that, and no longer than `within`.
    pub(crate) fn leave(self: &Arc<Self>, within: Duration) {
        let (rank, passed) = (self.rank(), self.passed.load(Ordering::Relaxed));
        let how = presence::gone(rank, Departure::Closed, passed, self.last_of());
        let this = Arc::clone(self);
        let (leaves, has_left) = channel();
        *self.leaves.lock() = Some(has_left);
        farewell::tell(self.store_number, move || {
            let _leaves: Sender<()> = leaves;
            let note = Note::Left(how.clone()).encode();
            let told = farewell::persist(|| this.store(this.next_round(), &note, LAST));
            this.leave_regroups(Leave::Departed(how.clone()));
            this.has_left.store(true, Ordering::Relaxed);
            if let Some(verdict) = this.left_behind(&how) {
                let _ = this.decide("close", verdict);
            }
            told
        })
        .wait(LAST.min(within));
    }
}

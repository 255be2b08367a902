//! What a communicator holds to compare with its other ranks.

use std::sync::{Arc, OnceLock};

use super::ballot::Verdict;
use super::in_process::InProcess;
use super::notes::Ending;
use super::over_exchange::this_rank::{LAST, OverExchange};
#[cfg(nccl_ge_2_27)]
use super::points::Points;
use super::split::{Choice, Splits};
use crate::error::{Error, Result};
use crate::exchange::farewell;

/// How the ranks of a communicator compare. See [`Validator`](super::validator::Validator).
#[derive(Debug)]
pub(crate) enum Validation {
    /// The ranks are a clique, and compare in shared memory.
    InProcess(Arc<InProcess>),
    /// The ranks live in several processes. They compare over an exchange if the communicator is
    /// checked, else not at all.
    AcrossProcesses(OnceLock<Arc<OverExchange>>),
}

impl Validation {
    pub(crate) fn new(in_process: Option<Arc<InProcess>>) -> Self {
        in_process.map_or_else(|| Self::AcrossProcesses(OnceLock::new()), Self::InProcess)
    }

    /// The ranks of a communicator that lives in several processes compare from now on.
    pub(crate) fn set_over_exchange(&self, over_exchange: Arc<OverExchange>) {
        if let Self::AcrossProcesses(cell) = self {
            let _ = cell.set(over_exchange);
        }
    }

    #[inline]
    pub(crate) fn in_process(&self) -> Option<&InProcess> {
        match self {
            Self::InProcess(in_process) => Some(in_process),
            Self::AcrossProcesses(_) => None,
        }
    }

    #[inline]
    pub(crate) fn over_exchange(&self) -> Option<&Arc<OverExchange>> {
        match self {
            Self::InProcess(_) => None,
            Self::AcrossProcesses(over_exchange) => over_exchange.get(),
        }
    }

    /// `rank` has launched a collective: prepares the memory that its next one is compared in.
    #[inline]
    pub(crate) fn launched(&self, rank: usize) {
        if let Some(in_process) = self.in_process() {
            in_process.signatures.look_ahead(rank);
        }
    }

    /// Tells the ranks of other processes that `error` has ended the communicator on `rank`, if
    /// they compare. A store that does not answer holds this up for a second, and those that follow
    /// hardly.
    #[cold]
    pub(crate) fn announce_end(&self, rank: usize, error: &Error) {
        if let Some(over_exchange) = self.over_exchange() {
            let (over_exchange, end) = (Arc::clone(over_exchange), Ending::of(rank, error));
            farewell::tell(over_exchange.store_number(), move || over_exchange.record_end(&end).map(drop)).wait(LAST);
        }
    }

    /// Whether the ranks compare what they are about to do.
    #[inline]
    pub(crate) fn compares(&self) -> bool {
        self.in_process().is_some() || self.over_exchange().is_some()
    }

    /// What the ranks have shown each other at points, if they compare.
    #[cfg(nccl_ge_2_27)]
    pub(crate) fn points(&self) -> Option<&Points> {
        let points = self.in_process().map(|in_process| &in_process.points);
        points.or_else(|| self.over_exchange().map(|over_exchange| &over_exchange.points))
    }

    /// What the ranks have asked for in splits, if they compare.
    pub(crate) fn splits(&self) -> Option<&Splits> {
        let splits = self.in_process().map(|in_process| &in_process.splits);
        splits.or_else(|| self.over_exchange().map(|over_exchange| &over_exchange.splits))
    }

    /// Shows the other ranks what `rank` asks for in a split with this number, before the ranks
    /// come to its point.
    pub(crate) fn show_split(&self, rank: usize, split: u64, choice: Option<Choice>) {
        if let Some(in_process) = self.in_process() {
            in_process.splits.show(rank, split, choice);
        } else if let Some(over_exchange) = self.over_exchange() {
            over_exchange.show_split(split, choice);
        }
    }

    /// Reads what the other ranks ask for in a split, to whose point all have come.
    pub(crate) fn see_split(&self, operation: &'static str, split: u64) -> Result<()> {
        self.over_exchange().map_or(Ok(()), |over_exchange| over_exchange.see_split(operation, split))
    }

    /// Shows the other ranks which windows `rank` has dropped, and how large the one is that it
    /// makes, before the ranks come to a point.
    #[cfg(nccl_ge_2_27)]
    pub(crate) fn show_point(&self, rank: usize, point: u64, dropped: impl FnOnce() -> Vec<u64>, bytes: usize) {
        if let Some(in_process) = self.in_process() {
            in_process.points.show(rank, point, dropped(), bytes);
        } else if let Some(over_exchange) = self.over_exchange() {
            over_exchange.show_point(point, dropped(), bytes);
        }
    }

    /// Reads what the other ranks have shown at a point to which all have come.
    #[cfg(nccl_ge_2_27)]
    pub(crate) fn see_point(&self, operation: &'static str, point: u64) -> Result<()> {
        self.over_exchange().map_or(Ok(()), |over_exchange| over_exchange.see_point(operation, point))
    }

    /// Returns the error that all ranks report, each with its `operation`, after this rank has
    /// found that others disagree.
    #[cold]
    pub(crate) fn decide(&self, operation: &'static str, verdict: Verdict) -> Error {
        match (self.in_process(), self.over_exchange()) {
            (Some(in_process), _) => in_process.signatures.decide(verdict).error(operation),
            (None, Some(over_exchange)) => over_exchange.decide(operation, verdict),
            (None, None) => verdict.error(operation),
        }
    }
}

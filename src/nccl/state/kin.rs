//! Which other ranks of the process a rank belongs to.

use std::sync::Arc;

use super::inner::Inner;
use crate::error::Error;
use crate::nccl::agree::dispute::Verdict;
#[cfg(nccl_ge_2_27)]
use crate::nccl::agree::points::Points;
use crate::nccl::agree::splits::Splits;

impl Inner {
    /// All ranks of this process that end because of `cause`, when this one is aborted: also those of what was split off from it.
    pub(crate) fn mates(&self, cause: &Error) -> Vec<Arc<Self>> {
        self.household.fail(cause)
    }

    /// All ranks of this process that belong together: this one alone, where there are no others.
    pub(crate) fn relatives(&self) -> Vec<Arc<Self>> {
        match &self.family {
            Some(family) => family.all().collect(),
            None => self.me().upgrade().into_iter().collect(),
        }
    }

    /// Whether its ranks compare what they are about to do: those of a clique, and those of a checked communicator.
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    pub(crate) fn compares(&self) -> bool {
        self.family.is_some() || self.checked.get().is_some()
    }

    /// What they have shown each other at points, where they compare.
    #[cfg(nccl_ge_2_27)]
    pub(crate) fn points(&self) -> Option<&Points> {
        let family = self.family.as_ref().map(|family| &family.points);
        family.or_else(|| self.checked.get().map(|checked| &checked.points))
    }

    /// What they have asked for in splits, where they compare.
    pub(crate) fn splits(&self) -> Option<&Splits> {
        let family = self.family.as_ref().map(|family| &family.splits);
        family.or_else(|| self.checked.get().map(|checked| &checked.splits))
    }

    /// This rank finds that others disagree, with which it compares: what all report, each with its `operation`.
    #[cold]
    pub(crate) fn decide(&self, operation: &'static str, verdict: Verdict) -> Error {
        match (&self.family, self.checked.get()) {
            (None, Some(checked)) => checked.decide(operation, verdict),
            (None, None) => verdict.error(operation),
            (Some(family), _) => {
                let Verdict { rank, peer, expected, got } = verdict;
                family.ledger.decide(rank, peer, expected, got).error(operation)
            }
        }
    }

    /// The other communicators of this rank that share their resources with it, as far as they are active.
    pub(crate) fn sharers(&self) -> Vec<Arc<Self>> {
        match self.shared_lock() {
            Some(_) => {
                let mut all = self.household.all();
                all.retain(|other| other.order == self.order && other.id != self.id && other.is_active());
                all
            }
            None => Vec::new(),
        }
    }
}

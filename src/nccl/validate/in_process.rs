//! What the ranks of a clique share in the memory of their process, to compare.

use super::ballot::RanksOf;
use super::order::Sharing;
#[cfg(nccl_ge_2_27)]
use super::points::Points;
use super::regroup::Regroup;
use super::signature_log::SignatureLog;
use super::split::Splits;
use crate::name::Name;

/// What the ranks of one communicator compare, all of which live in this process.
#[derive(Debug)]
pub(crate) struct InProcess {
    size: usize,
    pub(crate) signatures: SignatureLog,
    #[cfg(nccl_ge_2_27)]
    pub(crate) points: Points,
    pub(crate) splits: Splits,
    pub(crate) regroup: Regroup,
    /// The order in which communicators are used that share their resources, if this one does.
    pub(crate) sharing: Option<Sharing>,
}

impl InProcess {
    /// For `size` ranks.
    pub(crate) fn new(size: usize, of: RanksOf, sharing: Option<Sharing>) -> Self {
        Self {
            size,
            signatures: SignatureLog::new(size, of),
            #[cfg(nccl_ge_2_27)]
            points: Points::new(size),
            splits: Splits::new(size),
            regroup: Regroup::new(size),
            sharing,
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// For a part of these ranks, which are listed in their order in the part.
    pub(crate) fn of_part(&self, ranks: &[usize], name: Name) -> Self {
        let sharing = self.sharing.as_ref().map(|sharing| sharing.part(&name, ranks));
        Self::new(ranks.len(), RanksOf::part(name), sharing)
    }

    /// For a communicator of `size` ranks that is made from this one and lives on without it: it
    /// shares with its own parts only.
    pub(crate) fn of_rest(&self, size: usize, name: Name) -> Self {
        let sharing = self.sharing.as_ref().map(|_| Sharing::new(&name, size));
        Self::new(size, RanksOf::part(name), sharing)
    }
}

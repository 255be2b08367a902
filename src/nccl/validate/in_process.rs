//! What the ranks of a clique share in the memory of their process, to compare.

use super::order::Sharing;
#[cfg(nccl_ge_2_27)]
use super::points::Points;
use super::regroup::Regroup;
use super::signature_log::SignatureLog;
use super::split::Splits;

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
    /// For `size` ranks. `part` names the communicator ("of color 3"), if it was made from another
    /// one.
    pub(crate) fn new(size: usize, part: Option<String>, sharing: Option<Sharing>) -> Self {
        Self {
            size,
            signatures: SignatureLog::new(size, part),
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
    pub(crate) fn of_part(&self, ranks: &[usize], part: String) -> Self {
        let sharing = self.sharing.as_ref().map(|sharing| sharing.part(part.clone(), ranks));
        Self::new(ranks.len(), Some(part), sharing)
    }

    /// For a communicator of `size` ranks that is made from this one and lives on without it: it
    /// shares with its own parts only.
    pub(crate) fn of_rest(&self, size: usize, part: String) -> Self {
        Self::new(size, Some(part), self.sharing.as_ref().map(|_| Sharing::new(size)))
    }
}

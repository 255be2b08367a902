//! The ranks of a communicator that live in this process, all of them, and so compare what they are about to do.

use std::sync::{Arc, OnceLock, Weak};

use super::children::{Child, Children};
use crate::nccl::agree::ledger::Ledger;
use crate::nccl::agree::order::Sharing;
#[cfg(nccl_ge_2_27)]
use crate::nccl::agree::points::Points;
use crate::nccl::agree::regroup::Regroup;
use crate::nccl::agree::splits::Splits;

/// What they share; `R` is a rank.
#[derive(Debug)]
pub(crate) struct Family<R> {
    pub(crate) ledger: Ledger,
    #[cfg(nccl_ge_2_27)]
    pub(crate) points: Points,
    pub(crate) splits: Splits,
    pub(crate) regroup: Regroup,
    /// Where what is split off shares its resources: in which order they are used.
    pub(crate) sharing: Option<Sharing>,
    /// Those of a child come one by one.
    members: Box<[OnceLock<Weak<R>>]>,
    children: Children<Self>,
}

impl<R> Family<R> {
    /// Of so many ranks, of a part ("of color" and so on) of other ranks perhaps.
    pub(crate) fn new(size: usize, part: Option<String>, sharing: Option<Sharing>) -> Self {
        Self {
            ledger: Ledger::new(size, part),
            #[cfg(nccl_ge_2_27)]
            points: Points::new(size),
            splits: Splits::new(size),
            regroup: Regroup::new(size),
            sharing,
            members: (0..size).map(|_| OnceLock::new()).collect(),
            children: Children::default(),
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// `member` is one of its ranks, before it does anything.
    pub(crate) fn join(&self, rank: usize, member: &Arc<R>) {
        let _ = self.members[rank].set(Arc::downgrade(member));
    }

    /// One of its ranks, if that has come and is still there.
    pub(crate) fn member(&self, rank: usize) -> Option<Arc<R>> {
        self.members.get(rank)?.get()?.upgrade()
    }

    /// Its ranks that have come and are still there.
    pub(crate) fn all(&self) -> impl Iterator<Item = Arc<R>> {
        self.members.iter().filter_map(|member| member.get()?.upgrade())
    }

    /// That of a child, in which these ranks are, in their order there; `part` says which part that is.
    pub(crate) fn child(&self, child: Child, ranks: &[usize], part: String) -> Arc<Self> {
        self.children.of(child, || {
            let sharing = self.sharing.as_ref().map(|sharing| sharing.part(part.clone(), ranks));
            Self::new(ranks.len(), Some(part), sharing)
        })
    }

    /// That of a child of so many ranks that goes on without this one, and shares with what comes from it only.
    pub(crate) fn rest(&self, child: Child, size: usize, part: String) -> Arc<Self> {
        self.children.of(child, || {
            let sharing = self.sharing.as_ref().map(|_| Sharing::new(size));
            Self::new(size, Some(part), sharing)
        })
    }
}

//! Names of communicators that are the same for all their ranks, in every process.

use std::sync::Arc;

use crate::exchange::digest;
use crate::nccl::setup::unique_id::UniqueId;

/// How a communicator was made from another one. Earlier splits come first in the order of these
/// values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Child {
    /// A part: the number of the split, which all ranks count alike, and the color.
    Part(u64, usize),
    /// A part of a communicator that was revoked, where splits are counted anew.
    RevokedPart(u64, usize),
    /// The communicator without these ranks, which are sorted, and how often that was asked for
    /// before.
    Rest(Arc<[usize]>, u64),
    /// The communicator with so many more ranks, and how often that was asked for before.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    Grown(usize, u64),
}

impl Child {
    /// Encodes it. No two values have the same bytes, and none is the beginning of another.
    fn bytes(&self) -> Vec<u8> {
        let (kind, first, second, others): (u8, u64, u64, &[usize]) = match self {
            Self::Part(times, color) => (0, *times, *color as u64, &[]),
            Self::RevokedPart(times, color) => (1, *times, *color as u64, &[]),
            Self::Rest(excluded, times) => (2, *times, excluded.len() as u64, excluded),
            Self::Grown(more, times) => (3, *times, *more as u64, &[]),
        };
        let words = [first, second].into_iter().chain(others.iter().map(|rank| *rank as u64));
        std::iter::once(kind).chain(words.flat_map(u64::to_le_bytes)).collect()
    }

    /// Names the part in words that follow "the part": "of color 3".
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Part(_, color) | Self::RevokedPart(_, color) => format!("of color {color}"),
            Self::Grown(more, _) => format!("with {more} more"),
            Self::Rest(excluded, _) => match &**excluded {
                [one] => format!("without rank {one}"),
                all => format!("without ranks {}", all.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
            },
        }
    }
}

/// Identifies a communicator: the id that its first ancestor was started with, and how each
/// descendant was made. A child comes after its parent in the order of lineages. The order does not
/// depend on the order in which threads make communicators.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lineage {
    id: [u8; UniqueId::BYTES],
    children: Vec<Child>,
}

impl Lineage {
    /// The lineage of a communicator that is started with `id`.
    pub(super) fn new(id: &UniqueId) -> Self {
        Self { id: *id.as_bytes(), children: Vec::new() }
    }

    /// The lineage of a child of this communicator.
    pub(super) fn with(&self, child: Child) -> Self {
        Self { id: self.id, children: self.children.iter().cloned().chain([child]).collect() }
    }

    /// Encodes it, in the same way in all programs.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = u8> {
        self.id.into_iter().chain(self.children.iter().flat_map(Child::bytes))
    }

    /// Makes an id for a child that ranks of other processes join: they know nothing else of its
    /// lineage.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) fn key(&self, child: &Child) -> UniqueId {
        let part = |at: u8| digest(self.bytes().chain(child.bytes()).chain([at])).to_le_bytes();
        let parts: Vec<_> = (0..UniqueId::BYTES.div_ceil(16)).flat_map(|at| part(at as u8)).collect();
        UniqueId::from_bytes(std::array::from_fn(|at| parts[at]))
    }

    /// Names the part in words that follow "the part". `None` for a communicator that was not made
    /// from another one.
    pub(super) fn part(&self) -> Option<String> {
        let parts: Vec<_> = self.children.iter().rev().map(Child::describe).collect();
        (!parts.is_empty()).then(|| parts.join(" of the part "))
    }
}

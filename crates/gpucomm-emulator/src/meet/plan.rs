//! What those that meet in a segment keep there beside what every meeting needs.

use super::layout::{Head, MAX_RANKS, Pair, Rank};

/// Parts of a segment that belong to those that meet in it: one for all, one for each rank, one for each pair of ranks.
///
/// # Safety
/// Memory of zeros is a value of each part, and so is whatever other processes write there at any time. No two plans have one name.
pub(crate) unsafe trait Plan {
    /// Tells segments of this plan from others.
    const NAME: [u8; 8];
    type Common: Sync;
    type Own: Sync;
    type Between: Sync;
}

/// What every part is aligned to, at most.
const ALIGN: usize = 64;
/// The part for all begins on a page, and ends with it.
const HEAD_BYTES: usize = 4096;

/// Where the parts lie that a plan adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) name: u64,
    /// Behind the beginning of the segment, of a rank and of a pair.
    pub(super) common: usize,
    pub(super) own: usize,
    pub(super) between: usize,
    /// From one rank to the next, and from one pair to the next.
    rank: usize,
    pair: usize,
}

const fn behind<Meet, Part>() -> usize {
    assert!(align_of::<Meet>() <= ALIGN && align_of::<Part>() <= ALIGN);
    size_of::<Meet>().next_multiple_of(align_of::<Part>())
}

const fn stride<Meet, Part>() -> usize {
    (behind::<Meet, Part>() + size_of::<Part>()).next_multiple_of(ALIGN)
}

impl Shape {
    pub(super) const fn of<P: Plan>() -> Self {
        assert!(stride::<Head, P::Common>() <= HEAD_BYTES);
        Self {
            name: u64::from_le_bytes(P::NAME),
            common: behind::<Head, P::Common>(),
            own: behind::<Rank, P::Own>(),
            between: behind::<Pair, P::Between>(),
            rank: stride::<Rank, P::Own>(),
            pair: stride::<Pair, P::Between>(),
        }
    }

    /// Where a rank begins.
    pub(super) fn rank(&self, rank: usize) -> usize {
        assert!(rank < MAX_RANKS);
        HEAD_BYTES + rank * self.rank
    }

    /// Where a pair begins. That does not depend on how many ranks there are, so pages are touched only where messages go.
    pub(super) fn pair(&self, from: usize, to: usize) -> usize {
        assert!(from < MAX_RANKS && to < MAX_RANKS);
        HEAD_BYTES + MAX_RANKS * self.rank + (from * MAX_RANKS + to) * self.pair
    }

    /// All of it.
    pub(super) fn bytes(&self) -> usize {
        HEAD_BYTES + MAX_RANKS * self.rank + MAX_RANKS * MAX_RANKS * self.pair
    }
}

/// A plan for tests, with parts of odd sizes.
#[cfg(test)]
pub(crate) mod bare {
    use super::Plan;
    use std::sync::atomic::{AtomicU8, AtomicU64};

    #[derive(Debug)]
    pub(crate) struct Bare;

    // SAFETY: all is atomic, and the name is used once.
    unsafe impl Plan for Bare {
        const NAME: [u8; 8] = *b"bareplan";
        type Common = AtomicU64;
        type Own = [AtomicU8; 3];
        type Between = AtomicU8;
    }
}

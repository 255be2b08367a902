//! What PEs keep in their segment.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use crate::meet::plan::Plan;
use crate::meet::segment::Segment;

/// The most teams that there can be at once.
pub(crate) const MAX_TEAMS: usize = 128;

/// What a member of a team shows when they meet.
pub(crate) const WORDS: usize = 11;

/// What a PE shows that makes a team by an id.
pub(crate) const JOIN_WORDS: usize = 5;

/// The plan of the segments of PEs.
#[derive(Debug)]
pub(crate) struct Nvshmem;

// SAFETY: all parts are atomics, of which every value is valid. The name is used here only.
unsafe impl Plan for Nvshmem {
    const NAME: [u8; 8] = *b"gpushmem";
    type Common = AtomicU32;
    type Own = Own;
    type Between = AtomicU32;
}

/// What a PE shows.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Own {
    /// Its device, as the machine numbers them.
    pub(crate) device: AtomicI32,
    /// How much of it is its own, in thousandths of a percent; 0 where nobody said.
    pub(crate) share: AtomicU32,
    /// Where its heap begins.
    pub(crate) heap: [AtomicU64; 4],
    /// It makes a team by an id: see `calls::teams`.
    pub(crate) join: [AtomicU64; JOIN_WORDS],
    /// How far it is in each team.
    pub(crate) slots: [Slot; MAX_TEAMS],
}

/// How far a PE is in a team.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slot {
    /// Which team, and how often it has come and gone.
    pub(crate) told: AtomicU64,
    pub(crate) words: [AtomicU64; WORDS],
}

/// What a PE shows in a segment.
pub(crate) fn own(segment: &Segment, pe: usize) -> &Own {
    segment.own_of::<Nvshmem>(pe)
}

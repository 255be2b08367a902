//! The uses of an allocation, shared by threads.
//!
//! A mutex around [`RangedUses`], and a way past it: `solo` names the stream whose unmarked write of everything is the
//! only entry, if that is how things are. For that stream, `order` has nothing to wait for, and `note` nothing to add, so both are one
//! load and a comparison.
//!
//! # Why the way past the mutex is sound
//!
//! `solo` is set to nobody, under the lock, before anything is changed or marked, and set anew when that is done.
//! `order` of `s` that finds `s` there: every conflicting access was noted before, by whoever lent the memory since,
//! so what is found is at least as new; and an unmarked entry of `s` alone covers all that was noted. `note` of `s`
//! that finds `s` there, after its enqueue: the entry of `s` was unmarked at some moment. If another thread has marked
//! it since, does the mark cover the enqueue? A mark may be older than the request for it, if the stream has counted
//! nothing since. The enqueue was counted before this load, and the other thread stored nobody before it looked at the
//! count; all four are sequentially consistent. Had it missed the enqueue, this load would have found nobody. So the
//! entry, marked or not, covers the access.
//!
//! Launches of graphs hold no borrow: what keeps them from an access is a [turn](super::turns).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::ranged::{RangedUses, Span};
use super::turn::Turn;
use super::uses::{Access, Lane};
use crate::error::Result;
use crate::lock::Mutex;

/// Nobody in `solo`: no lane has this id.
const NOBODY: usize = 0;

/// Who uses an allocation.
pub(crate) struct Tracker<L: Lane> {
    solo: AtomicUsize,
    /// False where uses are neither ordered nor remembered. Then `solo` is nobody, so that this is asked on the slow path only.
    tracks: bool,
    uses: Mutex<RangedUses<L>>,
    /// Whether a graph uses the memory, or did.
    in_graphs: AtomicBool,
    turn: Turn,
}

impl<L: Lane> Tracker<L> {
    pub(crate) const fn new() -> Self {
        Self::tracking(true)
    }

    /// For memory whose uses somebody else orders.
    pub(crate) const fn none() -> Self {
        Self::tracking(false)
    }

    const fn tracking(tracks: bool) -> Self {
        Self {
            solo: AtomicUsize::new(NOBODY),
            tracks,
            uses: Mutex::new(RangedUses::new()),
            in_graphs: AtomicBool::new(false),
            turn: Turn::new(),
        }
    }

    /// From now on a graph uses the memory. Who says so holds a borrow that excludes whatever conflicts with that.
    pub(super) fn set_in_graphs(&self) {
        self.in_graphs.store(true, Ordering::Relaxed);
    }

    /// Whether a graph uses the memory, or did.
    #[inline]
    pub(crate) fn is_in_graphs(&self) -> bool {
        self.in_graphs.load(Ordering::Relaxed)
    }

    /// What threads wait for where a graph uses the memory; see [`Turns`](super::turns::Turns).
    pub(super) fn turn(&self) -> &Turn {
        &self.turn
    }

    /// Whether the way past the mutex is open to `lane`.
    #[inline]
    pub(crate) fn is_solo(&self, lane: &L) -> bool {
        self.solo.load(Ordering::SeqCst) == lane.id()
    }

    pub(super) fn change<R>(&self, f: impl FnOnce(&mut RangedUses<L>) -> R) -> R {
        let mut uses = self.uses.lock();
        self.solo.store(NOBODY, Ordering::SeqCst);
        let result = f(&mut uses);
        self.solo.store(uses.solo().map_or(NOBODY, Lane::id), Ordering::Release);
        result
    }

    /// Before an enqueue on `lane`: makes it wait for what `access` to `span` conflicts with. See [`RangedUses::order`].
    #[inline]
    pub(crate) fn order(&self, span: Span, access: Access, lane: &L) -> Result<bool> {
        if self.is_solo(lane) || !self.tracks { Ok(true) } else { self.change(|uses| uses.order(span, access, lane)) }
    }

    /// After an enqueue on `lane`, or an attempt. See [`RangedUses::note`].
    #[inline]
    pub(crate) fn note(&self, span: Span, access: Access, lane: &L) {
        if !self.is_solo(lane) && self.tracks {
            self.change(|uses| uses.note(span, access, lane));
        }
    }

    /// Whether all uses are done. Does not wait.
    pub(crate) fn idle(&self) -> Result<bool> {
        self.change(RangedUses::idle)
    }

    /// Whether all writes are done. Does not wait.
    pub(crate) fn written(&self) -> Result<bool> {
        self.change(RangedUses::written)
    }

    /// The lanes of the uses that are not known to be done.
    pub(crate) fn lanes(&self) -> Vec<L> {
        self.change(|uses| uses.lanes().cloned().collect())
    }

    /// Takes the uses out.
    pub(crate) fn take(&mut self) -> RangedUses<L> {
        *self.solo.get_mut() = NOBODY;
        std::mem::replace(self.uses.get_mut(), RangedUses::new())
    }
}

//! What a rank keeps of its one-sided operations.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::cuda::{Access, Stream, Tracker};
use crate::error::Result;

/// The one-sided operations of one rank.
pub(crate) struct OneSided {
    /// All ranks have come to the first one.
    ready: AtomicBool,
    /// Puts and signals: one after the other, whatever streams they are on, as NCCL numbers signals at one place for all streams, and a
    /// number must not overtake the next.
    given: Tracker,
    /// Waits for signals, which need not come one after the other.
    awaited: Tracker,
}

impl Default for OneSided {
    fn default() -> Self {
        Self { ready: AtomicBool::new(false), given: Tracker::new(), awaited: Tracker::new() }
    }
}

impl OneSided {
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Has `stream` wait for the puts and signals before, on other streams.
    pub(crate) fn order_given(&self, stream: &Stream) -> Result<()> {
        self.given.order(Access::Write, stream)
    }

    /// One more is on `stream`.
    pub(crate) fn note_given(&self, stream: &Stream) {
        self.given.note(Access::Write, stream);
    }

    /// One more wait is on `stream`.
    pub(crate) fn note_awaited(&self, stream: &Stream) {
        self.awaited.note(Access::Read, stream);
    }

    /// Whether all puts are done: windows of other ranks are not used any more.
    pub(crate) fn has_given(&self) -> Result<bool> {
        Ok(!self.is_ready() || self.given.is_done()?)
    }

    /// Whether all waits are done.
    pub(crate) fn has_waited(&self) -> Result<bool> {
        Ok(!self.is_ready() || self.awaited.is_done()?)
    }
}

impl std::fmt::Debug for OneSided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OneSided").field("ready", &self.ready).finish_non_exhaustive()
    }
}

//! Tracks the one-sided operations of a rank.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::cuda::{Access, Span, Stream, Tracker};
use crate::error::Result;

/// The one-sided operations of one rank.
pub(crate) struct OneSided {
    /// Whether all ranks have come to the first one.
    ready: AtomicBool,
    /// Puts and signals. They run one after the other, on whatever streams: NCCL numbers the
    /// signals of all streams together, and they must arrive in that order.
    given: Tracker,
    /// Waits for signals. They may run at the same time.
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

    /// Has `stream` wait for earlier puts and signals on other streams.
    pub(crate) fn order_given(&self, stream: &Stream) -> Result<()> {
        self.given.order(Span::ALL, Access::Write, stream).map(drop)
    }

    /// Notes a put or signal on `stream`.
    pub(crate) fn note_given(&self, stream: &Stream) {
        self.given.note(Span::ALL, Access::Write, stream);
    }

    /// Notes a wait on `stream`.
    pub(crate) fn note_awaited(&self, stream: &Stream) {
        self.awaited.note(Span::ALL, Access::Read, stream);
    }

    /// Whether all puts are done, so that windows of other ranks are not used any more.
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

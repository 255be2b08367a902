//! A request on its way, as the threads of a rank see it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use super::at::At;
use super::completion::Completion;
use super::counters::Counters;
use super::lane::Lane;
use super::why::Reason;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// What is known of a request.
#[cfg_attr(not(feature = "tracing"), allow(dead_code))]
#[derive(Debug)]
pub(super) struct Meta {
    pub(super) operation: &'static str,
    pub(super) rank: usize,
    pub(super) generation: u64,
    pub(super) lane: Option<Lane>,
    pub(super) submitted: Instant,
    pub(super) deadline: Deadline,
    /// How it is found out that it is done; `None` where it is answered as soon as it is enqueued.
    pub(super) completion: Option<Arc<dyn Completion>>,
    pub(super) ticket: Ticket,
    pub(super) counters: Arc<Counters>,
}

/// Whether requests that belong together have begun, or were cancelled: all or none.
#[derive(Debug, Clone, Default)]
pub(super) struct Ticket(Arc<AtomicU8>);

const WAITS: u8 = 0;
const BEGUN: u8 = 1;
const CANCELLED: u8 = 2;

impl Ticket {
    fn settle(&self, wanted: u8) -> bool {
        match self.0.compare_exchange(WAITS, wanted, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(found) => found == wanted,
        }
    }

    /// Whether they begin, or have.
    pub(super) fn begin(&self) -> bool {
        self.settle(BEGUN)
    }

    /// Whether they are cancelled, or were.
    pub(super) fn cancel(&self) -> bool {
        self.settle(CANCELLED)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire) == CANCELLED
    }
}

/// What has come of enqueuing.
#[derive(Debug)]
pub(super) enum Begun {
    /// The stream has it.
    Enqueued,
    /// It has failed, and was answered.
    Failed(Error),
    /// Nobody wants it any more.
    Not,
}

/// A request on its way.
pub(super) trait Task: Send + Sync + fmt::Debug {
    fn meta(&self) -> &Meta;

    /// Enqueues it, unless it was cancelled.
    fn enqueue(&self, at: &At<'_>) -> Begun;

    /// It is done, or has failed on the device.
    fn finish(&self, result: Result<()>);

    /// It has no result, wherever it is.
    fn refuse(&self, reason: Reason, error: Error);

    /// It is too late, where it has not begun.
    fn expire(&self, error: Error);

    /// Whether it waits to begin, and was not cancelled.
    fn waits(&self) -> bool;

    /// Whether it has its answer.
    fn is_answered(&self) -> bool;
}

impl Meta {
    /// The error of what was not done in time.
    pub(super) fn late(&self, what: &str) -> Error {
        let lane = self.lane.as_ref().map(|lane| format!(", lane {:?}", lane.name)).unwrap_or_default();
        self.deadline.error(self.operation, format!("rank {}{lane}: {what}", self.rank))
    }
}

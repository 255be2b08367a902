//! How the requests of a rank are done.

use std::sync::Arc;
use std::time::Duration;

use super::completion::Completion;
use super::counters::Counters;
use super::lane::Lane;

/// How the requests of a rank are done. All that were submitted through one handle share it: a count of references of its own, which threads of other
/// ranks do not touch.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) rank: usize,
    pub(super) generation: u64,
    pub(super) lane: Option<Lane>,
    /// How it is found out that they are done.
    pub(super) completion: Arc<dyn Completion>,
    /// How long they may take, from where they are submitted.
    pub(super) timeout: Duration,
    /// Whether who submits one waits for room.
    pub(super) waits: bool,
    pub(super) counters: Arc<Counters>,
}

//! How the requests of a rank are done.

use std::sync::Arc;
use std::time::Duration;

use super::completion::Completion;
use super::counters::Counters;
use super::guarded::discard;
use super::lane::Lane;
use crate::name::Name;

/// How the requests of a rank are done. All requests that were submitted through one handle share one of these, so that threads of
/// other ranks do not touch its reference count.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    /// The name of the world.
    #[cfg_attr(not(feature = "tracing"), allow(dead_code))]
    pub(super) world: Name,
    pub(super) rank: usize,
    pub(super) generation: u64,
    pub(super) lane: Option<Lane>,
    /// How it is found out that they are done.
    pub(super) completion: Watcher,
    /// How long they may take, from where they are submitted.
    pub(super) timeout: Duration,
    /// Whether who submits one waits for room.
    pub(super) waits: bool,
    pub(super) counters: Arc<Counters>,
}

/// A completion, which may have a destructor of the user's.
#[derive(Debug, Clone)]
pub(super) struct Watcher(Option<Arc<dyn Completion>>);

impl Watcher {
    pub(super) fn new(completion: Arc<dyn Completion>) -> Self {
        Self(Some(completion))
    }

    /// The completion, unless it is being dropped.
    pub(super) fn get(&self) -> Option<&Arc<dyn Completion>> {
        self.0.as_ref()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // The last handle of a request may be that of a thread on which others depend.
        if let Some(last) = self.0.take_if(|completion| Arc::strong_count(completion) == 1) {
            discard(last);
        }
    }
}

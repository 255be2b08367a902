//! The threads of a world.

use std::thread::{self, JoinHandle};

use super::guarded::of_a_world;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// Starts one, which must run no user code but requests and completions.
pub(super) fn spawn(name: impl Into<String>, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let run = move || {
        of_a_world();
        run();
    };
    thread::Builder::new().name(name.into()).spawn(run).map_err(|error| Error::InvalidUsage {
        operation: "World",
        reason: format!("a thread cannot be started: {error}"),
    })
}

/// Waits until these threads have ended and dropped what they own. Returns false at the deadline.
pub(super) fn wait_for(threads: &[JoinHandle<()>], deadline: &Deadline) -> bool {
    let over = || Ok(threads.iter().all(JoinHandle::is_finished).then_some(()));
    matches!(deadline.until(over), Ok(Some(())))
}

//! The threads of a world.

use std::thread::{self, JoinHandle};

use super::guarded::of_a_world;
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

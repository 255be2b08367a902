//! The threads of a world.

use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};

/// Starts one.
pub(super) fn spawn(name: impl Into<String>, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(run).map_err(|error| Error::InvalidUsage {
        operation: "World",
        reason: format!("a thread cannot be started: {error}"),
    })
}

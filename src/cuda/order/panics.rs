//! Panics of host functions, which the next wait for their stream tells.

use crate::error::{Error, Result};
use crate::lock::Mutex;
use crate::panicked;

/// The first panic since the last wait.
#[derive(Debug, Default)]
pub(crate) struct Panics(Mutex<Option<Error>>);

impl Panics {
    /// Runs a host function, and keeps its panic.
    pub(crate) fn catch(&self, run: impl FnOnce()) {
        if let Err(said) = panicked::caught(run) {
            let error = Error::InvalidUsage {
                operation: "Stream::launch_host",
                reason: format!("a host function panicked: {said}"),
            };
            self.0.lock().get_or_insert(error);
        }
    }

    /// The panic that was kept, once.
    pub(crate) fn tell(&self) -> Result<()> {
        self.0.lock().take().map_or(Ok(()), Err)
    }
}

//! What a rank waits for in a comparison with the others, for its dump.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::nccl::rank::inner::Inner;

/// Shorter waits are not reported. Also the least time between two reports.
const SOON: Duration = Duration::from_millis(20);

/// A wait, which is told once it takes some time.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// When it has begun, or was told last. Most waits never ask for the time.
    last: Option<Instant>,
    told: Option<Arc<Inner>>,
}

impl Comparison {
    /// Records that `inner` waits, and removes the record of the rank that waited before.
    pub(crate) fn waits(&mut self, inner: &Inner, what: impl FnOnce() -> String) {
        if self.last.get_or_insert_with(Instant::now).elapsed() < SOON {
            return;
        }
        self.last = Some(Instant::now());
        if self.told.as_ref().is_none_or(|told| told.id != inner.id) {
            self.clear();
            self.told = inner.me().upgrade();
        }
        inner.issued.compares(what().into());
    }

    /// Ends the wait with an error, and keeps its record for the dumps of that error.
    pub(crate) fn failed(&mut self, error: Error) -> Error {
        if let Some(told) = self.told.take() {
            told.issued.comparison_failed();
        }
        error
    }

    fn clear(&mut self) {
        if let Some(told) = self.told.take() {
            told.issued.compares_no_more();
        }
    }
}

impl Drop for Comparison {
    fn drop(&mut self) {
        self.clear();
    }
}

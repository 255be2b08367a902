//! How long a wait inside one process lasts, and the line on stderr that says so.

use std::time::{Duration, Instant};

use super::report;
use super::settings::settings;

/// One wait.
#[derive(Debug)]
pub(crate) struct Patience {
    since: Instant,
    /// After how long it is reported.
    limit: Option<Duration>,
    reported: bool,
}

impl Patience {
    /// A wait that begins now.
    pub fn new() -> Self {
        Self::of(settings().deadlock)
    }

    /// The same, which is reported after `limit`.
    pub fn of(limit: Option<Duration>) -> Self {
        Self { since: Instant::now(), limit, reported: false }
    }

    /// Says once that `what` has waited for too long. That is a line and no violation: a
    /// program may have a deadline of its own.
    pub fn check(&mut self, what: impl FnOnce() -> String) {
        let waited = self.since.elapsed();
        if !self.reported && self.limit.is_some_and(|patience| waited >= patience) {
            self.reported = true;
            report::line(format!("deadlock? {} has waited {:.1} s", what(), waited.as_secs_f64()));
        }
    }
}

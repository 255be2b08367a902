//! How long a wait inside one process lasts, and the line on stderr that says so.

use std::time::{Duration, Instant};

use super::report;
use super::settings::settings;

/// One wait.
#[derive(Debug)]
pub struct Patience {
    since: Instant,
    /// After how long it is reported.
    limit: Option<Duration>,
    reported: bool,
}

impl Patience {
    /// A wait that begins now.
    #[allow(clippy::new_without_default, reason = "it reads the clock and the settings")]
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
        self.report(|waited| format!("deadlock? {} has waited {waited:.1} s", what()));
    }

    /// The same, in a `sentence` that says who waits for what.
    pub fn check_sentence(&mut self, sentence: impl FnOnce() -> String) {
        self.report(|waited| format!("deadlock? After {waited:.1} s, {}", sentence()));
    }

    fn report(&mut self, line: impl FnOnce(f64) -> String) {
        let waited = self.since.elapsed();
        if !self.reported && self.limit.is_some_and(|patience| waited >= patience) {
            self.reported = true;
            report::line(line(waited.as_secs_f64()));
        }
    }
}

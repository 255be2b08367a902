//! A wait for other PEs that gives up by itself, and has the others give up the same meeting.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::notes::{Absent, Point, behind, within};
use super::wait_state::{Awaited, WaitState};
use crate::deadline::Deadline;
use crate::error::Error;

/// A wait for other PEs that gives up by itself.
pub(crate) struct Waiting<'w> {
    pub(super) shared: &'w Arc<WaitState>,
    pub(super) number: u64,
    pub(super) operation: &'static str,
    pub(super) timeout: Duration,
    pub(super) awaited: &'w Awaited,
    pub(super) deadline: Cell<Deadline>,
    /// Whether it has looked once more after its deadline.
    pub(super) is_up: Cell<bool>,
    /// Whether another PE has gone on from this meeting.
    pub(super) is_passed: Cell<bool>,
}

impl Waiting<'_> {
    /// Returns the error of a wait for a PE that has ended or given up.
    pub(crate) fn departure_error(&self) -> Option<Error> {
        let shared = self.shared;
        if shared.departed.load(Ordering::Acquire) != self.number {
            return None;
        }
        let Absent { pe, how, .. } = shared.now().absent.clone()?;
        let how = format!("{how}; {} waits for it", shared.own());
        Some(Error::Departed { operation: self.operation, rank: pe, how })
    }

    /// Returns the error with which this PE gives up the meeting `point`, once it waits in vain or its deadline has passed. The others
    /// learn of it, and none of them goes on from there. `detail` says for what it waits. Called again and again, each time after a
    /// check whether the wait is over.
    pub(crate) fn gives_up(&self, point: Point, detail: impl Fn() -> String) -> Option<Error> {
        let error = match self.departure_error() {
            Some(error) => error,
            None if !self.deadline.get().expired() || !self.is_up.replace(true) => return None,
            None => self.deadline.get().error(self.operation, detail()),
        };
        let shared = self.shared;
        let how = format!("has given up {}: {}", self.operation, why(&error));
        let left = Deadline::after(within(self.deadline.get().remaining(), self.timeout));
        // A team of one member has no other PE to ask.
        if let Some(questions) = shared.questions().filter(|_| !shared.others_of(self.awaited).is_empty()) {
            let (passed, note) = (self.is_passed.get(), how.clone());
            let gives_up = questions.ask(left.remaining(), move |notes| {
                let gives_up = passed || notes.gives_up(point, &note);
                if gives_up {
                    notes.gave_up(&note);
                }
                gives_up
            });
            if gives_up == Some(false) {
                // All have come, so this PE's device will be done in a moment.
                self.is_passed.set(true);
                self.deadline.set(Deadline::after(self.timeout));
                self.is_up.set(false);
                shared.departed.store(0, Ordering::Release);
                return None;
            }
            shared.leaves();
        }
        let error = self.late_by(error, &left);
        let mut now = shared.now();
        // The thread ends, and the note stays.
        now.gave_up = Some(Instant::now());
        now.over = true;
        Some(error)
    }

    /// Adds the missing PEs to a timeout. The others give up as well, and the note of this PE stays for them.
    pub(crate) fn late(&self, error: Error) -> Error {
        self.late_by(error, &Deadline::after(behind(self.timeout)))
    }

    /// As [`late`](Self::late), but waits for the store until this deadline.
    fn late_by(&self, error: Error, deadline: &Deadline) -> Error {
        let Error::Timeout { operation, timeout, mut detail, rank, peer } = error else { return error };
        detail.push('.');
        self.shared.others(&mut detail, self.awaited, None, deadline.remaining());
        self.shared.now().gave_up = Some(Instant::now());
        let late = Error::Timeout { operation, timeout, detail: detail.trim_end_matches('.').to_owned(), rank, peer };
        late.between(self.shared.between(self.awaited))
    }
}

/// The reason with which a PE gives up, for the others.
pub(super) fn why(error: &Error) -> String {
    match error {
        Error::Departed { rank, how, .. } => format!("PE {rank} {how}"),
        Error::Timeout { timeout, .. } => format!("not all PEs had come within {timeout:?}"),
        other => other.to_string(),
    }
}

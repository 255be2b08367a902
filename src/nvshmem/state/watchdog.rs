//! Ends the process if a thread waits inside the library for other PEs beyond its timeout, because the library never gives up.
//!
//! Meanwhile the exchange is asked which PEs have ended, so that no thread waits for a PE that is known to be dead.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::death_watch::{ASKS, LOOK, REST};
use super::lateness::{Shortest, least};
use super::notes::{Absent, Notes, Point, within};
use super::questions::Questions;
use super::wait_state::{Awaited, TAKE, WaitState};
use super::waiting::{Waiting, why};
use crate::callbacks;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::lock::{Mutex, is_forked};
use crate::shared_deadline::SharedDeadline;

/// Watches the calls of one context, from a thread of its own. Without that thread it still tells the other PEs what this one does.
pub(crate) struct Watchdog {
    shared: Arc<WaitState>,
    /// Closed when the thread has ended; `None` where there is no thread.
    thread: Option<Mutex<Receiver<()>>>,
}

impl Watchdog {
    /// Starts the watchdog of one PE. It tells the others by `exchange`, if that has the same ranks. `start` names this start of the
    /// library, in the same way on all PEs. The thread runs only if `is_on`.
    pub(crate) fn start(
        place: Option<(usize, usize)>,
        exchange: Option<&Exchange>,
        start: &[u8],
        is_on: bool,
    ) -> Result<Self> {
        let (now, note, over, departed, passed, has_left) = Default::default();
        let exchange = exchange.filter(|exchange| place == Some((exchange.rank(), exchange.size())));
        // A single PE has no others to tell.
        let exchange = exchange.filter(|exchange| exchange.size() > 1);
        let questions = exchange.map(|exchange| Notes::new(exchange, start)).transpose()?.map(Questions::new);
        let questions = Mutex::new(questions);
        let shared = Arc::new(WaitState { now, note, over, place, questions, passed, has_left, departed });
        let thread = is_on.then(|| WaitState::start_watch(&shared)).transpose()?.map(Mutex::new);
        Ok(Self { shared, thread })
    }

    /// Runs `call`, which may wait for other PEs for ever. If it waits for `timeout`, or one of them has ended, the process ends.
    pub(crate) fn during<R>(
        &self,
        operation: &'static str,
        timeout: Duration,
        awaited: &Awaited,
        call: impl FnOnce() -> R,
    ) -> R {
        let _over = self.thread.is_some().then(|| self.shared.begin(operation, timeout, awaited, false));
        call()
    }

    /// Runs `call`, which waits for other PEs too, and can give up.
    pub(crate) fn during_wait<R>(
        &self,
        operation: &'static str,
        timeout: Duration,
        awaited: &Awaited,
        call: impl FnOnce(&Waiting<'_>) -> Result<R>,
    ) -> Result<R> {
        let shared = &self.shared;
        let _over = shared.begin(operation, timeout, awaited, true);
        let number = shared.now().calls;
        // Of a call that has waited before, the rest of its time, but some at least: the others may be in this call already.
        let spent = timeout.saturating_sub(SharedDeadline::within(timeout).remaining()).min(timeout - least(timeout));
        let deadline = Cell::new(Deadline::after(timeout).sooner(spent));
        let (is_up, is_passed) = Default::default();
        call(&Waiting { shared, number, operation, timeout, awaited, deadline, is_up, is_passed })
    }

    /// Returns true if another PE may have given up a meeting that began at `since`, or at an unknown time, with these timeouts.
    pub(super) fn may_be_given_up(&self, shortest: &Shortest, since: Option<Instant>) -> bool {
        self.shared.questions().is_some() && shortest.may_be_over(since, ASKS + LOOK * REST)
    }

    /// Records that this PE goes on from the meeting `point`, to which it came late. Waits for the store until the deadline of the call,
    /// or for a moment.
    ///
    /// # Errors
    /// Returns [`Error::Departed`] if another PE had given up the meeting, and so does not go on, and [`Error::Exchange`] if the store does
    /// not answer.
    pub(crate) fn pass(&self, operation: &'static str, point: Point, deadline: &Deadline) -> Result<()> {
        let shared = &self.shared;
        let Some(questions) = shared.questions() else { return Ok(()) };
        let answer = questions.ask(within(deadline.remaining(), deadline.timeout()), move |notes| notes.passes(point));
        let absent = answer.unwrap_or_else(|| {
            let reason = "no answer from the store".to_owned();
            Err(Error::Exchange { operation, key: String::new(), reason })
        });
        match absent {
            Ok(None) => {
                let before = shared.passed().insert(point.0, point.1);
                if let Some(before) = before {
                    // All PEs have come to a later one.
                    questions.forget([(point.0, before)]);
                }
                Ok(())
            }
            Ok(Some(Absent { pe, how, .. })) => {
                let how = format!("{how}; {} has come too late", shared.own());
                self.leave(format!("has come too late to {operation}"));
                Err(Error::Departed { operation, rank: pe, how })
            }
            Err(error) => {
                let own = shared.own();
                let reason =
                    format!("{own} cannot tell whether another PE has given up on this one, as it came late: {error}");
                Err(Error::Exchange { operation, key: String::new(), reason })
            }
        }
    }

    /// Tells the others that this PE fails in the meeting `point`, before or after all have come, and does not go on from there.
    pub(super) fn abandon(&self, operation: &'static str, point: Point, error: &Error) {
        let how = format!("has given up {operation}: {}", why(error));
        let Some(questions) = self.shared.questions().filter(|_| !self.shared.leaves()) else { return };
        questions.begin(move |notes| {
            notes.gives_up(point, &how);
            notes.gave_up(&how);
        });
    }

    /// Tells the others that this PE takes part in nothing more because of this error.
    pub(crate) fn give_up(&self, error: &Error) {
        self.leave(format!("has given up its context: {}", why(error)));
    }

    /// Has the others told that this PE takes part in nothing more, unless they have been told. Does not wait: if the process ends
    /// before, they notice its end.
    fn leave(&self, how: String) {
        if let Some(questions) = self.shared.questions().filter(|_| !self.shared.leaves()) {
            questions.begin(move |notes| notes.gave_up(&how));
        }
    }

    /// Forgets a team of which no member comes to a meeting any more.
    pub(crate) fn forget(&self, team: u64) {
        let last = self.shared.passed().remove(&team);
        if let (Some(questions), Some(last)) = (self.shared.questions(), last) {
            questions.forget([(team, last)]);
        }
    }

    /// Tells the other PEs that this one has finalized, so that they do not take its end for a death, and ends the watchdog. Waits until
    /// the store has done this and all that it was asked before, within the deadline of the call, or for a moment behind it.
    pub(crate) fn finalized(&self, deadline: &Deadline) {
        if let Some(questions) = self.shared.questions() {
            let patience = Deadline::after(within(deadline.remaining(), deadline.timeout()));
            questions.ask(patience.remaining(), Notes::finalized);
            questions.forget(std::mem::take(&mut *self.shared.passed()));
            questions.finish(patience.remaining().min(TAKE));
        }
        self.end();
    }

    /// Waits for the thread, and gives up the exchange: nothing of the context uses the store any more, also if memory or teams of it
    /// were forgotten. A forked child has no such thread.
    fn end(&self) {
        self.shared.now().over = true;
        self.shared.over.notify_all();
        if is_forked() {
            return;
        }
        if let Some(thread) = &self.thread {
            let _ = thread.lock().recv_timeout(TAKE);
        }
        // The destructor of the store may be the user's.
        let questions = self.shared.questions.lock().take();
        if let Some(questions) = questions {
            let within = TAKE + questions.lingers();
            callbacks::drop_within(questions, within);
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end();
    }
}

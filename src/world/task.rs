//! A request on its way, as the threads of a rank see it.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::at::At;
use super::failure_reason::Reason;
use super::terms::Terms;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// What is known of a request.
#[cfg_attr(not(feature = "tracing"), allow(dead_code))]
#[derive(Debug)]
pub(super) struct Meta {
    pub(super) operation: &'static str,
    pub(super) submitted: Instant,
    pub(super) deadline: Deadline,
    /// Whether it is answered as soon as it is enqueued.
    pub(super) in_order: bool,
    pub(super) ticket: Ticket,
    pub(super) terms: Arc<Terms>,
}

/// Lets requests that belong together begin together, or end together before they begin.
#[derive(Debug, Clone)]
pub(super) struct Ticket {
    /// What has become of them. A single request has none.
    fate: Option<Arc<OnceLock<Fate>>>,
    /// Whether they are those of all ranks of the world. If not, none is cancelled: the other ranks
    /// would run a collective without this one, and take its next one for it.
    whole: bool,
}

#[derive(Debug)]
enum Fate {
    Begun,
    Cancelled,
    /// One of them cannot be done, for this reason.
    Refused(Reason, Error),
}

impl Ticket {
    /// For the requests of several ranks.
    pub(super) fn shared(whole: bool) -> Self {
        Self { fate: Some(Arc::default()), whole }
    }

    /// For the request of one rank.
    pub(super) fn single(whole: bool) -> Self {
        Self { fate: None, whole }
    }

    /// Whether they begin, or have begun.
    pub(super) fn begin(&self) -> bool {
        let Some(fate) = &self.fate else { return true };
        matches!(fate.get_or_init(|| Fate::Begun), Fate::Begun)
    }

    /// Cancels them unless they have begun, or others belong to them that this does not cancel. Returns
    /// whether none of them begins.
    pub(super) fn cancel(&self) -> bool {
        if !self.whole {
            return self.is_over();
        }
        let Some(fate) = &self.fate else { return true };
        !matches!(fate.get_or_init(|| Fate::Cancelled), Fate::Begun)
    }

    /// Ends them unless they have begun, because one of them cannot be done.
    pub(super) fn refuse(&self, reason: Reason, error: &Error) {
        let Some(fate) = &self.fate else { return };
        fate.get_or_init(|| Fate::Refused(reason, error.clone()));
    }

    /// Whether none of them begins.
    pub(super) fn is_over(&self) -> bool {
        self.fate.as_ref().and_then(|fate| fate.get()).is_some_and(|fate| !matches!(fate, Fate::Begun))
    }

    /// Why none of them begins, if they were not cancelled.
    pub(super) fn refusal(&self) -> Option<(Reason, Error)> {
        match self.fate.as_ref()?.get()? {
            Fate::Refused(reason, error) => Some((*reason, error.clone())),
            Fate::Begun | Fate::Cancelled => None,
        }
    }
}

/// What has come of enqueuing.
#[derive(Debug)]
pub(super) enum Begun {
    /// The stream has it.
    Enqueued,
    /// It has failed, and was answered.
    Failed(Error),
    /// Nobody wants it any more.
    Not,
}

/// A request on its way.
pub(super) trait Task: Send + Sync + fmt::Debug {
    fn meta(&self) -> &Meta;

    /// Enqueues it, unless it was cancelled.
    fn enqueue(&self, at: &At<'_>) -> Begun;

    /// It is done, or has failed on the device.
    fn finish(&self, result: Result<()>);

    /// It has no result, wherever it is.
    fn refuse(&self, reason: Reason, error: Error);

    /// It is too late, where it has not begun.
    fn expire(&self, error: Error);

    /// Whether it waits to begin, and was not cancelled.
    fn waits(&self) -> bool;

    /// Whether it has its answer.
    fn is_answered(&self) -> bool;
}

impl Meta {
    /// The error of what was not done in time.
    pub(super) fn late(&self, what: &str) -> Error {
        self.late_in(format!("rank {}{}: {what}", self.terms.rank, self.lane()))
    }

    /// The same, where it may be known for whom the rank waits.
    pub(super) fn late_as(&self, waits: Option<String>, what: &str) -> Error {
        match waits {
            Some(waits) => self.late_in(format!("{waits}{}", self.lane())),
            None => self.late(what),
        }
    }

    fn late_in(&self, detail: String) -> Error {
        self.deadline.error(self.operation, detail).waited_by(self.terms.rank)
    }

    fn lane(&self) -> String {
        self.terms.lane.as_ref().map(|lane| format!(", lane {:?}", lane.name)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_together_ends_for_one_reason() {
        let (refused, cancelled, begun) = (Ticket::shared(true), Ticket::shared(true), Ticket::shared(true));
        let error = Error::Aborted { operation: "test", reason: "the world was closed".into() };
        refused.refuse(Reason::Closed, &error);
        assert!(!refused.begin() && refused.is_over() && refused.cancel());
        assert!(matches!(refused.refusal(), Some((Reason::Closed, Error::Aborted { .. }))));
        assert!(cancelled.cancel() && !cancelled.begin() && cancelled.is_over());
        cancelled.refuse(Reason::Closed, &error);
        assert!(cancelled.refusal().is_none());
        assert!(begun.begin() && !begun.cancel());
        begun.refuse(Reason::Closed, &error);
        assert!(begun.begin() && !begun.is_over() && begun.refusal().is_none());
    }
}

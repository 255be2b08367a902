//! How far a request is.

use std::task::Waker;

use super::failure_reason::{Failed, Reason};
use super::guarded::caught;
use super::request::Request;
use crate::error::Error;

/// What comes of a request.
pub(super) type Outcome<B> = Result<B, Failed<B>>;

/// How far a request is, and who waits for it.
pub(super) struct State<R: Request> {
    pub(super) stage: Stage<R>,
    pub(super) waker: Option<Waker>,
    /// Whether somebody waits for the answer.
    pub(super) wanted: bool,
}

/// How far a request is.
pub(super) enum Stage<R: Request> {
    Queued(R),
    /// The thread of the rank has it.
    Begun,
    /// The device is at it.
    Running(R),
    /// It is counted and traced, outside of the lock.
    Ending {
        cancelled: bool,
    },
    Over(Ended<R>),
    Told,
}

/// A request that has ended. The thread that takes the answer makes the buffers of it, which is user code.
pub(super) struct Ended<R> {
    /// `None` if the thread of the rank has it for good.
    pub(super) request: Option<R>,
    /// Why it has no result, if it has none.
    pub(super) failure: Option<Box<(Reason, Error)>>,
}

impl<R: Request> Ended<R> {
    /// The answer. A panic of the request's is an error of its own answer.
    pub(super) fn outcome(self, operation: &'static str) -> Outcome<R::Back> {
        let back = self.request.map(|request| caught(|| request.into_back()));
        let (reason, error) = match (self.failure, back) {
            (None, Some(Ok(back))) => return Ok(back),
            (Some(failure), back) => {
                let (reason, error) = *failure;
                return Err(Failed::new(reason, error, back.and_then(Result::ok)));
            }
            (None, Some(Err(said))) => (Reason::Failed, said),
            (None, None) => (Reason::Failed, "it has no buffers".to_owned()),
        };
        Err(Failed::new(reason, Error::InvalidUsage { operation, reason: error }, None))
    }
}

impl<R: Request> Stage<R> {
    /// In a word.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Queued(_) => "queued",
            Self::Begun => "begun",
            Self::Running(_) => "running",
            Self::Ending { .. } => "ending",
            Self::Over(_) => "over",
            Self::Told => "told",
        }
    }
}

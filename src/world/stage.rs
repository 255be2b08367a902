//! How far a request is.

use std::task::Waker;

use super::request::Request;
use super::why::Failed;

/// What comes of a request.
pub(super) type Outcome<R> = Result<<R as Request>::Back, Failed<<R as Request>::Back>>;

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
    /// It gives its buffers back, which is code of users, outside of the lock.
    Ending {
        cancelled: bool,
    },
    Over(Box<Outcome<R>>),
    Told,
}

/// What a request has that ends.
pub(super) enum Held<R> {
    All(R),
    /// The thread of the rank has it.
    Elsewhere,
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

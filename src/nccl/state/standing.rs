//! How a communicator stands: whether it still takes calls, and if not, since when and why.
//!
//! All moves from one state to another are in [`State::may_become`].

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;

/// How a communicator stands. Only while it is active are calls possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Calls are possible.
    Active,
    /// It was [revoked](crate::nccl::Communicator::revoke): what was under way was stopped, and has no result. Others can be made of it, by
    /// [`Revoked`](crate::nccl::Revoked).
    Revoked,
    /// It is [suspended](crate::nccl::Communicator::suspend): what it had done is well, and it can be resumed, by
    /// [`Suspended`](crate::nccl::Suspended).
    Suspended,
    /// Its work was done and is well, and NCCL is taking it down in order: it was closed or dropped. One that shares its resources
    /// ([`Config::split_share`](crate::nccl::Config::split_share)) stays so until those have ended that share them.
    Closing,
    /// It was closed, and NCCL has let go of it.
    Closed,
    /// It was aborted, by somebody or because something has failed, and NCCL is taking it down. What was under way has no result.
    Aborting,
    /// It was aborted, and NCCL has let go of it.
    Aborted,
}

impl State {
    const ALL: [Self; 7] =
        [Self::Active, Self::Revoked, Self::Suspended, Self::Closing, Self::Closed, Self::Aborting, Self::Aborted];

    fn of(number: u8) -> Self {
        Self::ALL[usize::from(number)]
    }

    /// Whether a communicator in this state may come into the state `next`.
    const fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Active, Self::Revoked | Self::Suspended | Self::Closing | Self::Aborting)
                | (Self::Revoked, Self::Aborting)
                | (Self::Suspended, Self::Active | Self::Aborting)
                | (Self::Closing, Self::Closed)
                | (Self::Aborting, Self::Aborted)
        )
    }

    /// The state after this one, once NCCL has let go.
    const fn ended(self) -> Self {
        match self {
            Self::Active | Self::Revoked | Self::Suspended | Self::Aborting | Self::Aborted => Self::Aborted,
            Self::Closing | Self::Closed => Self::Closed,
        }
    }

    /// Whether NCCL has let go.
    pub(crate) const fn is_ended(self) -> bool {
        matches!(self, Self::Closed | Self::Aborted)
    }
}

/// The state of one communicator, and what brought it there.
#[derive(Debug)]
pub(crate) struct Standing {
    state: AtomicU8,
    /// Why it is aborted; set before `state` says so.
    cause: OnceLock<Error>,
    /// Why it was revoked; set before `state` says so.
    revoked: OnceLock<Error>,
    /// Why it is suspended, and since when; set before `state` says so.
    suspended: Mutex<Option<(String, Instant)>>,
    /// Since when it is active no more; set before `state` says so.
    since: OnceLock<Instant>,
}

impl Standing {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU8::new(State::Active as u8),
            cause: OnceLock::new(),
            revoked: OnceLock::new(),
            suspended: Mutex::default(),
            since: OnceLock::new(),
        }
    }

    pub(crate) fn state(&self) -> State {
        State::of(self.state.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.state.load(Ordering::Acquire) == State::Active as u8
    }

    /// It is aborted because of `cause`; false where it was neither active nor revoked.
    pub(crate) fn condemn(&self, cause: Error) -> bool {
        // The first cause stays, as does the first moment.
        let _ = self.cause.set(cause);
        let _ = self.since.set(Instant::now());
        self.go(State::Aborting)
    }

    /// It is revoked because of `cause`; false where it was active no more.
    pub(crate) fn revoke(&self, cause: Error) -> bool {
        let _ = self.revoked.set(cause);
        let _ = self.since.set(Instant::now());
        self.go(State::Revoked)
    }

    /// Whether it was revoked, and nobody has ended it since. Ordered with the moves of others: either they are seen here, or who makes
    /// them sees what this thread has done before.
    pub(crate) fn is_revoked(&self) -> bool {
        self.state.load(Ordering::SeqCst) == State::Revoked as u8
    }

    /// Whether it was revoked at some time.
    pub(crate) fn was_revoked(&self) -> bool {
        self.revoked.get().is_some()
    }

    /// It is suspended, because of `reason`; false where it was active no more.
    pub(crate) fn suspend(&self, reason: &str) -> bool {
        let mut suspended = self.suspended.lock().unwrap_or_else(PoisonError::into_inner);
        let before = suspended.replace((reason.to_owned(), Instant::now()));
        let first = self.go(State::Suspended);
        if !first {
            *suspended = before;
        }
        first
    }

    /// It is active again; false where it was not suspended any more.
    pub(crate) fn resume(&self) -> bool {
        self.go(State::Active)
    }

    /// Whether it is suspended.
    pub(crate) fn is_suspended(&self) -> bool {
        self.state() == State::Suspended
    }

    /// It is closed; false where it was active no more.
    pub(crate) fn retire(&self) -> bool {
        let _ = self.since.set(Instant::now());
        self.go(State::Closing)
    }

    /// NCCL has let go; false where it had before.
    pub(crate) fn end(&self) -> bool {
        self.go(self.state().ended())
    }

    /// Whether this call has brought it into the state `next`.
    fn go(&self, next: State) -> bool {
        let allowed = |state: u8| State::of(state).may_become(next).then_some(next as u8);
        self.state.fetch_update(Ordering::SeqCst, Ordering::Acquire, allowed).is_ok()
    }

    /// Why it is revoked or aborted; `None` while it is neither.
    pub(crate) fn cause(&self) -> Option<&Error> {
        match self.state() {
            State::Active | State::Suspended | State::Closing | State::Closed => None,
            State::Revoked => self.revoked.get(),
            State::Aborting | State::Aborted => self.cause.get(),
        }
    }

    /// Why nothing more can be done, as an error of `operation`, and since when; `None` while it is active.
    pub(crate) fn refusal(&self, operation: &'static str) -> Option<Error> {
        let ago = || ago(self.since.get().map_or(Duration::ZERO, Instant::elapsed));
        match self.state() {
            State::Active => None,
            State::Closing | State::Closed => {
                Some(Error::Aborted { operation, reason: format!("it was closed {}", ago()) })
            }
            State::Suspended => {
                let (reason, since) = self.suspended.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
                let error = Error::Suspended { operation, reason };
                Some(error.noted(self::ago(since.elapsed())))
            }
            State::Revoked | State::Aborting | State::Aborted => Some(match self.cause() {
                Some(cause) => match cause.later(operation) {
                    error @ (Error::Revoked { .. } | Error::Aborted { .. }) => error.noted(ago()),
                    error => error,
                },
                None => Error::Aborted { operation, reason: ago() },
            }),
        }
    }
}

/// A time that has passed, in words.
fn ago(passed: Duration) -> String {
    match passed.as_secs() {
        0 => "less than a second ago".to_owned(),
        seconds => format!("{seconds} s ago"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause() -> Error {
        Error::Aborted { operation: "abort", reason: "the test aborts".into() }
    }

    #[test]
    fn numbers_are_those_of_the_states() {
        State::ALL.iter().for_each(|&state| assert_eq!(State::of(state as u8), state));
    }

    #[test]
    fn all_moves() {
        use State::{Aborted, Aborting, Active, Closed, Closing, Revoked, Suspended};
        let allowed = [
            (Active, Revoked),
            (Active, Suspended),
            (Suspended, Active),
            (Suspended, Aborting),
            (Active, Closing),
            (Active, Aborting),
            (Revoked, Aborting),
            (Closing, Closed),
            (Aborting, Aborted),
        ];
        for from in State::ALL {
            for to in State::ALL {
                assert_eq!(from.may_become(to), allowed.contains(&(from, to)), "{from:?} to {to:?}");
            }
            assert!(
                from.is_ended() || [Active, Revoked, Suspended].contains(&from) || from.may_become(from.ended()),
                "{from:?}"
            );
        }
    }

    #[test]
    fn one_end_and_the_first_cause() {
        let standing = Standing::new();
        assert!(standing.refusal("test").is_none() && standing.cause().is_none());
        assert!(!standing.end(), "NCCL does not let go of what is active");
        assert!(standing.condemn(cause()));
        assert!(!standing.condemn(Error::Aborted { operation: "abort", reason: "another one".into() }));
        assert!(!standing.retire());
        assert_eq!(standing.state(), State::Aborting);
        let told = standing.refusal("all_reduce").unwrap().to_string();
        assert_eq!(told, "all_reduce: the communicator was aborted: the test aborts (less than a second ago)");
        assert!(standing.end() && !standing.end());
        assert_eq!(standing.state(), State::Aborted);
    }

    #[test]
    fn what_was_closed_says_so() {
        let standing = Standing::new();
        assert!(standing.retire() && !standing.condemn(cause()));
        assert!(standing.cause().is_none());
        assert!(standing.end());
        assert_eq!(standing.state(), State::Closed);
        let told = standing.refusal("close").unwrap().to_string();
        assert_eq!(told, "close: the communicator was aborted: it was closed less than a second ago");
    }

    #[test]
    fn what_was_revoked_says_so_until_it_ends() {
        let standing = Standing::new();
        assert!(standing.revoke(Error::Revoked { operation: "revoke", reason: "a rank is lost".into() }));
        assert!(standing.is_revoked() && !standing.is_active() && !standing.retire());
        let told = standing.refusal("all_reduce").unwrap().to_string();
        assert_eq!(told, "all_reduce: the communicator was revoked: a rank is lost (less than a second ago)");
        assert!(standing.condemn(cause()) && !standing.is_revoked());
        let told = standing.refusal("shrink").unwrap().to_string();
        assert!(told.contains("the test aborts"), "{told}");
        assert!(standing.end());
        assert_eq!(standing.state(), State::Aborted);
    }

    #[test]
    fn what_is_suspended_says_so_until_it_is_resumed() {
        let standing = Standing::new();
        for reason in ["the test suspends", "once more"] {
            assert!(standing.suspend(reason) && !standing.suspend("another") && standing.is_suspended());
            assert!(!standing.is_active() && !standing.retire() && !standing.end());
            let told = standing.refusal("all_reduce").unwrap().to_string();
            let want = format!("all_reduce: the communicator is suspended: {reason} (less than a second ago)");
            assert_eq!(told, want);
            assert!(standing.resume() && !standing.resume() && standing.is_active());
            assert!(standing.refusal("all_reduce").is_none());
        }
        assert!(standing.suspend("for ever") && standing.condemn(cause()) && !standing.resume());
        assert!(standing.refusal("resume").unwrap().to_string().contains("the test aborts"));
    }

    #[test]
    fn times_in_words() {
        assert_eq!(ago(Duration::from_millis(999)), "less than a second ago");
        assert_eq!(ago(Duration::from_millis(61_900)), "61 s ago");
    }
}

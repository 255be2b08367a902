//! The state machine of one rank: whether it takes calls, and if not, since when and why.
//!
//! [`CommState::may_become`] lists all transitions.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::lock::Mutex;

/// The state of a communicator. Calls are possible only while it is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CommState {
    /// Calls are possible.
    Active,
    /// It was [revoked](crate::nccl::Communicator::revoke): operations that were under way were
    /// stopped, and have no result. Other communicators can be made of it, by
    /// [`Revoked`](crate::nccl::Revoked).
    Revoked,
    /// It is [suspended](crate::nccl::Communicator::suspend): its work was done before, and it can
    /// be resumed, by [`Suspended`](crate::nccl::Suspended).
    Suspended,
    /// It was closed or dropped after its work was done, and NCCL is freeing it. A communicator
    /// that shares its resources ([`Config::with_split_share`](crate::nccl::Config::with_split_share)) stays
    /// in this state until those that share them have ended.
    Closing,
    /// It was closed, and NCCL has freed it.
    Closed,
    /// It was aborted, by a call or because something has failed, and NCCL is freeing it.
    /// Operations that were under way have no result.
    Aborting,
    /// It was aborted, and NCCL has freed it.
    Aborted,
}

impl CommState {
    const ALL: [Self; 7] =
        [Self::Active, Self::Revoked, Self::Suspended, Self::Closing, Self::Closed, Self::Aborting, Self::Aborted];

    fn of(number: u8) -> Self {
        Self::ALL[usize::from(number)]
    }

    /// Whether the state may change to `next`.
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

    /// The state after this one, once NCCL has freed the communicator.
    pub(crate) const fn ended(self) -> Self {
        match self {
            Self::Active | Self::Revoked | Self::Suspended | Self::Aborting | Self::Aborted => Self::Aborted,
            Self::Closing | Self::Closed => Self::Closed,
        }
    }

    /// Whether NCCL has freed the communicator.
    pub(crate) const fn is_ended(self) -> bool {
        matches!(self, Self::Closed | Self::Aborted)
    }
}

/// Who aborts a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AbortedBy {
    /// A call that has failed, or whose purpose it is.
    Call,
    /// The watchdog, as a call stays inside NCCL. The watchdog does not know the method.
    Watchdog,
    /// A drop, which does not know why the work is not done.
    Drop,
}

/// The state of one rank, and why it was entered.
#[derive(Debug)]
pub(crate) struct StateMachine {
    state: AtomicU8,
    /// Why it is aborted, and by whom; set before `state` says so.
    cause: OnceLock<(Error, AbortedBy)>,
    /// Why it was revoked; set before `state` says so.
    revoked: OnceLock<Error>,
    /// Whether it was revoked: `revoked` is set also where the state did not allow that.
    was_revoked: AtomicBool,
    /// Why it is suspended, and since when; set before `state` says so.
    suspended: Mutex<Option<(String, Instant)>>,
    /// Since when it is not active any more; set before `state` says so.
    since: OnceLock<Instant>,
}

impl StateMachine {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU8::new(CommState::Active as u8),
            cause: OnceLock::new(),
            revoked: OnceLock::new(),
            was_revoked: AtomicBool::new(false),
            suspended: Mutex::default(),
            since: OnceLock::new(),
        }
    }

    pub(crate) fn state(&self) -> CommState {
        CommState::of(self.state.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.state.load(Ordering::Acquire) == CommState::Active as u8
    }

    /// Marks it aborted because of `cause`. Returns false if it has ended before, or is about to.
    pub(crate) fn mark_aborted(&self, cause: Error, by: AbortedBy) -> bool {
        // The first cause and the first time stay.
        let _ = self.cause.set((cause, by));
        let _ = self.since.set(Instant::now());
        self.go(CommState::Aborting)
    }

    /// Marks it revoked because of `cause`. Returns false if it was not active.
    pub(crate) fn mark_revoked(&self, cause: Error) -> bool {
        let _ = self.revoked.set(cause);
        let _ = self.since.set(Instant::now());
        let first = self.go(CommState::Revoked);
        if first {
            self.was_revoked.store(true, Ordering::SeqCst);
        }
        first
    }

    /// Whether it was revoked, and has not been ended since. Sequentially consistent with the
    /// transitions: either this thread sees another thread's transition, or that thread sees what
    /// this one has done before.
    pub(crate) fn is_revoked(&self) -> bool {
        self.state.load(Ordering::SeqCst) == CommState::Revoked as u8
    }

    /// Whether it was revoked at some time.
    pub(crate) fn was_revoked(&self) -> bool {
        self.is_revoked() || self.was_revoked.load(Ordering::SeqCst)
    }

    /// Marks it suspended because of `reason`. Returns false if it was not active.
    pub(crate) fn suspend(&self, reason: &str) -> bool {
        let mut suspended = self.suspended.lock();
        let before = suspended.replace((reason.to_owned(), Instant::now()));
        let first = self.go(CommState::Suspended);
        if !first {
            *suspended = before;
        }
        first
    }

    /// Marks it active again. Returns false if it was not suspended.
    pub(crate) fn resume(&self) -> bool {
        self.go(CommState::Active)
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.state() == CommState::Suspended
    }

    /// Marks it closed. Returns false if it was not active.
    pub(crate) fn mark_closing(&self) -> bool {
        let _ = self.since.set(Instant::now());
        self.go(CommState::Closing)
    }

    /// Marks it freed by NCCL. Returns false if it was before.
    pub(crate) fn mark_ended(&self) -> bool {
        self.go(self.state().ended())
    }

    /// Changes the state to `next`. Returns whether this call has done so.
    fn go(&self, next: CommState) -> bool {
        let allowed = |state: u8| CommState::of(state).may_become(next).then_some(next as u8);
        self.state.fetch_update(Ordering::SeqCst, Ordering::Acquire, allowed).is_ok()
    }

    /// Why it is revoked or aborted; `None` while it is neither.
    pub(crate) fn cause(&self) -> Option<&Error> {
        match self.state() {
            CommState::Active | CommState::Suspended | CommState::Closing | CommState::Closed => None,
            CommState::Revoked => self.revoked.get(),
            CommState::Aborting | CommState::Aborted => self.cause.get().map(|(cause, _)| cause),
        }
    }

    /// Who has aborted it; `None` while it is not aborted.
    pub(crate) fn aborted_by(&self) -> Option<AbortedBy> {
        let is_aborted = matches!(self.state(), CommState::Aborting | CommState::Aborted);
        self.cause.get().filter(|_| is_aborted).map(|(_, by)| *by)
    }

    /// Why nothing can be done with it, and since when, as an error of `operation`; `None` while it
    /// is active.
    pub(crate) fn refusal(&self, operation: &'static str) -> Option<Error> {
        let ago = || ago(self.since.get().map_or(Duration::ZERO, Instant::elapsed));
        match self.state() {
            CommState::Active => None,
            CommState::Closing | CommState::Closed => {
                Some(Error::Aborted { operation, reason: format!("it was closed {}", ago()).into() })
            }
            CommState::Suspended => {
                let (reason, since) = self.suspended.lock().clone()?;
                let error = Error::Suspended { operation, reason: reason.into() };
                Some(error.noted(self::ago(since.elapsed())))
            }
            CommState::Revoked | CommState::Aborting | CommState::Aborted => Some(match self.cause() {
                Some(cause) => match cause.later(operation) {
                    error @ (Error::Revoked { .. } | Error::Aborted { .. }) => error.noted(ago()),
                    error => error,
                },
                None => Error::Aborted { operation, reason: ago().into() },
            }),
        }
    }
}

/// Says in words how long something is ago.
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
        CommState::ALL.iter().for_each(|&state| assert_eq!(CommState::of(state as u8), state));
    }

    #[test]
    fn all_transitions() {
        use CommState::{Aborted, Aborting, Active, Closed, Closing, Revoked, Suspended};
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
        for from in CommState::ALL {
            for to in CommState::ALL {
                assert_eq!(from.may_become(to), allowed.contains(&(from, to)), "{from:?} to {to:?}");
            }
            assert!(
                from.is_ended() || [Active, Revoked, Suspended].contains(&from) || from.may_become(from.ended()),
                "{from:?}"
            );
        }
    }

    #[test]
    fn it_ends_once_and_keeps_the_first_cause() {
        let machine = StateMachine::new();
        assert!(machine.refusal("test").is_none() && machine.cause().is_none());
        assert!(!machine.mark_ended(), "NCCL does not free an active communicator");
        assert!(machine.mark_aborted(cause(), AbortedBy::Call));
        let another = Error::Aborted { operation: "abort", reason: "another one".into() };
        assert!(!machine.mark_aborted(another, AbortedBy::Drop));
        assert_eq!(machine.aborted_by(), Some(AbortedBy::Call));
        assert!(!machine.mark_closing());
        assert_eq!(machine.state(), CommState::Aborting);
        let error = machine.refusal("all_reduce").unwrap().to_string();
        assert_eq!(error, "all_reduce: the communicator was aborted: the test aborts (less than a second ago)");
        assert!(machine.mark_ended() && !machine.mark_ended());
        assert_eq!(machine.state(), CommState::Aborted);
    }

    #[test]
    fn a_closed_communicator_says_so() {
        let machine = StateMachine::new();
        assert!(machine.mark_closing() && !machine.mark_aborted(cause(), AbortedBy::Call));
        assert!(machine.cause().is_none());
        assert!(machine.mark_ended());
        assert_eq!(machine.state(), CommState::Closed);
        let error = machine.refusal("close").unwrap().to_string();
        assert_eq!(error, "close: the communicator was aborted: it was closed less than a second ago");
    }

    #[test]
    fn a_revoked_communicator_says_so_until_it_ends() {
        let machine = StateMachine::new();
        assert!(machine.mark_revoked(Error::Revoked { operation: "revoke", reason: "a rank is lost".into() }));
        assert!(machine.is_revoked() && !machine.is_active() && !machine.mark_closing());
        let error = machine.refusal("all_reduce").unwrap().to_string();
        assert_eq!(error, "all_reduce: the communicator was revoked: a rank is lost (less than a second ago)");
        assert!(machine.mark_aborted(cause(), AbortedBy::Call) && !machine.is_revoked());
        let error = machine.refusal("shrink").unwrap().to_string();
        assert!(error.contains("the test aborts"), "{error}");
        assert!(machine.mark_ended());
        assert_eq!(machine.state(), CommState::Aborted);
    }

    #[test]
    fn a_suspended_communicator_says_so_until_it_is_resumed() {
        let machine = StateMachine::new();
        for reason in ["the test suspends", "once more"] {
            assert!(machine.suspend(reason) && !machine.suspend("another") && machine.is_suspended());
            assert!(!machine.is_active() && !machine.mark_closing() && !machine.mark_ended());
            let error = machine.refusal("all_reduce").unwrap().to_string();
            let want = format!("all_reduce: the communicator is suspended: {reason} (less than a second ago)");
            assert_eq!(error, want);
            assert!(machine.resume() && !machine.resume() && machine.is_active());
            assert!(machine.refusal("all_reduce").is_none());
        }
        assert!(machine.suspend("for ever") && machine.mark_aborted(cause(), AbortedBy::Call) && !machine.resume());
        assert!(machine.refusal("resume").unwrap().to_string().contains("the test aborts"));
    }

    #[test]
    fn times_in_words() {
        assert_eq!(ago(Duration::from_millis(999)), "less than a second ago");
        assert_eq!(ago(Duration::from_millis(61_900)), "61 s ago");
    }
}

//! Finds the root cause among several failures of a program.
//!
//! The first error may be that of a victim: a rank that fails ends its communicators, and waits for
//! that, while the others return at once. So a thread notes when it begins to end communicators,
//! and why.
//!
//! Programs may fail with errors of their own, which say nothing about their cause. Then the state
//! of the rank's communicator says whether another rank had ended it before.

use std::any::Any;
use std::cell::RefCell;
use std::thread;
use std::time::Duration;

use crate::cuda::now;
use crate::error::{Cause, Error};
use crate::panicked;

/// A note that a thread began to end communicators.
struct Begun {
    since: u64,
    why: Error,
    /// Whether it was unwinding.
    unwinds: bool,
}

thread_local! {
    /// The last note of this thread, or the first in the panic that is under way.
    static BEGUN: RefCell<Option<Begun>> = const { RefCell::new(None) };
}

/// Notes that this thread is about to end communicators because of `error`, which it reports when
/// that is done.
pub(crate) fn begin(error: &Error) {
    let unwinds = thread::panicking();
    // A thread whose thread-locals are destroyed has no caller to report this to.
    let _ = BEGUN.try_with(|begun| {
        let mut begun = begun.borrow_mut();
        if !unwinds || begun.as_ref().is_none_or(|begun| !begun.unwinds) {
            *begun = Some(Begun { since: now(), why: error.clone(), unwinds });
        }
    });
}

/// Takes the note of this thread.
fn taken() -> Option<Begun> {
    BEGUN.try_with(RefCell::take).ok().flatten()
}

/// How a rank failed.
pub(crate) struct Failure {
    rank: usize,
    /// When the failure began.
    since: u64,
    /// Whether the rank is a victim: its error only says that another rank has ended a
    /// communicator, by an abort, or in order, as a rank that fails drops its parts.
    is_victim: bool,
    /// The rank that differs from others, if the error says so. Unknown for a part, where ranks
    /// have other numbers.
    differs: Option<usize>,
    /// For how long the rank has waited in vain, if that is how it failed.
    waited: Duration,
    /// Describes the failure for the other ranks.
    text: String,
    /// The error, if it is one of this crate.
    cause: Option<Error>,
    what: What,
}

/// What comes out of the program.
pub(crate) enum What {
    /// The error that the rank of this number has returned.
    Error(usize),
    Panic(Box<dyn Any + Send>),
}

impl Failure {
    /// `rank` has returned an error, on this thread: `known` if it is an error of this crate. If it
    /// is the program's own, the communicator of the rank may have `ended` because of another rank.
    pub(crate) fn returned(rank: usize, known: Option<&Error>, ended: Option<&Error>) -> Self {
        let brought = known.or(ended);
        let begun = taken().filter(|begun| brought.is_none_or(|error| begun.why == *error));
        let is_victim = match known {
            Some(error) => is_victim(error),
            // A rank that has ended the communicator itself is no victim.
            None => ended.is_some() && begun.is_none(),
        };
        let since = begun.map_or_else(now, |begun| begun.since);
        let said = known.map_or_else(|| String::from(" of its own"), |error| format!(": {error}"));
        let text = format!("rank {rank} returned an error{said}");
        let differs = brought.and_then(differs);
        let waited = brought.map_or(Duration::ZERO, Error::waited);
        Self { rank, since, is_victim, differs, waited, text, cause: known.cloned(), what: What::Error(rank) }
    }

    /// `rank` has panicked, on this thread.
    pub(crate) fn panicked(rank: usize, payload: Box<dyn Any + Send>) -> Self {
        // It has ended communicators while it unwound, or it unwraps the error for which it had ended
        // some.
        let is_it = |begun: &Begun| begun.unwinds || unwraps(&*payload, &begun.why);
        let since = taken().filter(is_it).map_or_else(now, |begun| begun.since);
        let what = panicked::said(&*payload);
        let text = what.map_or_else(|| format!("rank {rank} panicked"), |what| format!("rank {rank} panicked: {what}"));
        Self {
            rank,
            since,
            is_victim: false,
            differs: None,
            waited: Duration::ZERO,
            text,
            cause: None,
            what: What::Panic(payload),
        }
    }

    /// For how long the rank has waited in vain.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    /// The reason for which the other ranks end.
    pub(crate) fn reason(&self) -> Cause {
        let text = self.text.clone();
        let reason = match &self.cause {
            Some(cause) => Cause::because(text, cause.clone()),
            None => text.into(),
        };
        reason.of_rank(self.rank)
    }

    /// What comes out of the program.
    pub(crate) fn into_what(self) -> What {
        self.what
    }
}

/// Whether a panic with this payload unwraps `error`. Reads text, as there is nothing else:
/// `Result::unwrap` and `expect` put only the `Debug` form of an error into the payload.
fn unwraps(payload: &(dyn Any + Send), error: &Error) -> bool {
    payload.downcast_ref::<String>().is_some_and(|text| text.contains(&format!("{error:?}")))
}

/// Whether `error` only says that another rank has ended a communicator, or has left, perhaps
/// because of a failure of its own.
fn is_victim(error: &Error) -> bool {
    matches!(error, Error::Aborted { .. } | Error::Revoked { .. } | Error::Disagreement { departed: true, .. })
}

/// The rank that differs from others, if `error` says so.
fn differs(error: &Error) -> Option<usize> {
    match error {
        Error::Disagreement { rank, departed: false, in_part: false, .. } => Some(*rank),
        _ => None,
    }
}

/// Returns the root cause: if ranks disagree, the failure of the rank that differs, else the
/// failure that began first. A victim counts only if all are.
pub(crate) fn blame(mut failures: Vec<Failure>) -> Option<Failure> {
    let differs = failures.iter().find_map(|failure| failure.differs);
    let at_fault = |failure: &Failure| failure.differs.is_some() && Some(failure.rank) == differs;
    let order = |failure: &Failure| (!at_fault(failure), failure.is_victim, failure.since);
    let at = (0..failures.len()).min_by_key(|&at| order(&failures[at]))?;
    let at_fault = failures.swap_remove(at);
    for failure in failures {
        if let What::Panic(payload) = failure.what {
            panicked::forget(payload);
        }
    }
    Some(at_fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nccl::validate::ballot::Verdict;

    /// `rank` has returned an error of this crate.
    fn with(rank: usize, error: Error) -> Failure {
        Failure::returned(rank, Some(&error), None)
    }

    fn disagreement(at: usize, rank: usize, operation: &'static str) -> Failure {
        let (expected, got) = (String::from("this"), String::from("that"));
        with(at, Verdict::new(rank, 0, expected, got).error(operation))
    }

    fn error(reason: &str) -> Error {
        Error::InvalidUsage { operation: "the test", reason: reason.to_owned() }
    }

    fn other(at: usize) -> Failure {
        with(at, error(""))
    }

    fn abort(reason: &str) -> Error {
        Error::Aborted { operation: "the test", reason: reason.into() }
    }

    fn told(at: usize) -> Failure {
        with(at, abort(""))
    }

    fn blamed(failures: Vec<Failure>) -> Option<usize> {
        blame(failures).map(|failure| failure.rank)
    }

    #[test]
    fn who_is_at_fault() {
        assert_eq!(blamed(Vec::new()), None);
        assert_eq!(blamed(vec![other(3), other(1)]), Some(3));
        assert_eq!(blamed(vec![other(0), disagreement(1, 2, "a"), disagreement(2, 2, "b")]), Some(2));
        // The rank that differs may have panicked over its error, or never come to it.
        assert_eq!(blamed(vec![disagreement(1, 2, "a"), other(2)]), Some(1));
        let panic = Failure::panicked(3, Box::new("because"));
        assert_eq!(blamed(vec![panic, other(1)]), Some(3));
    }

    /// The failure of a rank that waited for rank 1, which has closed its communicator.
    fn left(at: usize) -> Failure {
        let (expected, got) = (String::new(), String::from("nothing: rank 1 has closed its communicator"));
        with(at, Verdict::departed(1, 0, expected, got).error("the test"))
    }

    /// Rank 1 of a part, which is rank 3 or so here, differs from rank 0 of it.
    #[test]
    fn ranks_of_parts_have_other_numbers() {
        let of_part = |at| {
            let (expected, got) = (String::from("this"), String::from("that (ranks of the part of color 0)"));
            with(at, Verdict { in_part: true, ..Verdict::new(1, 0, expected, got) }.error("a"))
        };
        assert_eq!(blamed(vec![of_part(3), other(1), of_part(1)]), Some(3));
        assert_eq!(blamed(vec![of_part(1), disagreement(2, 2, "a")]), Some(2));
    }

    #[test]
    fn who_was_told_is_not_at_fault() {
        assert_eq!(blamed(vec![told(0), other(2), told(1), other(3)]), Some(2));
        assert_eq!(blamed(vec![left(0), other(1)]), Some(1));
        assert_eq!(blamed(vec![left(1), disagreement(0, 2, "a"), disagreement(2, 2, "b")]), Some(2));
        assert_eq!(blamed(vec![left(2), left(0)]), Some(2));
        assert_eq!(blamed(vec![told(2), told(0)]), Some(2));
    }

    /// A rank that ends a communicator returns after the others have failed.
    #[test]
    fn who_began_is_at_fault() {
        begin(&error("out of memory"));
        let victim = std::thread::spawn(|| other(0)).join().unwrap();
        assert_eq!(blamed(vec![victim, with(1, error("out of memory"))]), Some(1));
        begin(&error("out of memory"));
        let victim = std::thread::spawn(|| Failure::panicked(0, Box::new(String::from("victim")))).join().unwrap();
        let own = format!("called `Result::unwrap()` on an `Err` value: {:?}", error("out of memory"));
        assert_eq!(blamed(vec![victim, Failure::panicked(1, Box::new(own))]), Some(1));
        // The note of a failure that the rank has handled does not count for a later one.
        begin(&error("out of memory"));
        let first = std::thread::spawn(|| other(0)).join().unwrap();
        assert_eq!(blamed(vec![first, other(1)]), Some(0));
    }

    /// A panic ends communicators that it drops. The others fail before it is reported.
    #[test]
    fn who_panics_is_at_fault() {
        struct Ends(&'static str);
        impl Drop for Ends {
            fn drop(&mut self) {
                begin(&abort(self.0));
            }
        }
        let panic = std::panic::catch_unwind(|| {
            let _all = [Ends("one"), Ends("another")];
            std::panic::resume_unwind(Box::new("because"));
        });
        let victim = std::thread::spawn(|| own(0, None)).join().unwrap();
        assert_eq!(blamed(vec![victim, Failure::panicked(1, panic.expect_err("a panic"))]), Some(1));
    }

    /// `rank` has returned an error of the program's own, when its communicator had ended because
    /// of this, or had not ended.
    fn own(rank: usize, ended: Option<&Error>) -> Failure {
        Failure::returned(rank, None, ended)
    }

    /// The program's own errors say nothing. The states of communicators do.
    #[test]
    fn errors_of_programs() {
        let (lost, late) = (abort("rank 1 returned an error of its own"), error("a peer does not come"));
        assert_eq!(blamed(vec![own(0, Some(&lost)), own(1, None), own(2, Some(&lost))]), Some(1));
        // The rank that ends the communicator returns last.
        begin(&late);
        let victim = std::thread::spawn({
            let late = late.clone();
            move || own(0, Some(&late))
        });
        assert_eq!(blamed(vec![victim.join().unwrap(), own(1, Some(&late))]), Some(1));
        // The rank has ended another communicator, such as a part: those of the others may be
        // active.
        begin(&late);
        let victim = std::thread::spawn(|| own(0, None)).join().unwrap();
        assert_eq!(blamed(vec![victim, own(1, None)]), Some(1));
        begin(&late);
        assert_eq!(blamed(vec![own(0, Some(&lost)), own(1, None)]), Some(1), "it has got over that");
        let (expected, got) = (String::from("this"), String::from("that"));
        let differs = Verdict::new(1, 0, expected, got).error("the test");
        assert_eq!(blamed(vec![own(0, Some(&differs)), own(1, Some(&differs))]), Some(1));
        assert_eq!(&*own(3, None).reason(), "rank 3 returned an error of its own");
    }
}

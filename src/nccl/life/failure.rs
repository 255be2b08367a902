//! How the ranks of a program fail, and which of several failures brought the others.
//!
//! The error that comes first may be that of a victim: who fails ends its communicators, and waits for that, while the
//! others are woken at once. So a thread notes when it begins to end communicators, and why.

use std::any::Any;
use std::cell::RefCell;

use crate::cuda::now;
use crate::error::Error;
use crate::nccl::agree::dispute::is_of_part;
use crate::nccl::wait::departure;

thread_local! {
    /// When this thread last began to end communicators, and why.
    static BEGUN: RefCell<Option<(u64, String)>> = const { RefCell::new(None) };
}

/// This thread is about to end communicators because of `error`, which it reports when that is done.
pub(crate) fn begin(error: &Error) {
    BEGUN.set(Some((now(), format!("{error:?}"))));
}

/// How a rank failed.
pub(crate) struct Failure {
    rank: usize,
    /// When that began.
    since: u64,
    what: What,
}

pub(crate) enum What {
    Error(Error),
    Panic(Box<dyn Any + Send>),
}

impl Failure {
    /// `rank` has failed, on this thread.
    pub(crate) fn new(rank: usize, what: What) -> Self {
        let now = now();
        let begun = BEGUN.take().filter(|(_, error)| what.is_of(error));
        Self { rank, since: begun.map_or(now, |(since, _)| since), what }
    }

    /// Whether all that it says is that somebody else has ended a communicator: by an abort, or its own, in good order, as who fails
    /// drops what it has split off.
    fn is_told(&self) -> bool {
        matches!(&self.what, What::Error(error) if matches!(error, Error::Aborted { .. }) || departure::is_told_by(error))
    }

    /// The rank that differs from others. In a part it has another number.
    fn differs(&self) -> Option<usize> {
        match &self.what {
            What::Error(error @ Error::Disagreement { rank, .. })
                if !departure::is_told_by(error) && !is_of_part(error) =>
            {
                Some(*rank)
            }
            _ => None,
        }
    }
}

impl What {
    /// Whether it is the error with these words, or a panic over that.
    fn is_of(&self, error: &str) -> bool {
        match self {
            Self::Error(own) => format!("{own:?}") == error,
            Self::Panic(payload) => payload.downcast_ref::<String>().is_some_and(|text| text.contains(error)),
        }
    }
}

impl Failure {
    /// What comes out of the program: an error says whose it is.
    pub(crate) fn into_what(self) -> What {
        match self.what {
            What::Error(error) => What::Error(error.of_rank(self.rank)),
            panic => panic,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.what {
            What::Error(error) => write!(f, "rank {} returned an error: {error}", self.rank),
            What::Panic(_) => write!(f, "rank {} panicked", self.rank),
        }
    }
}

/// The failure that brought the others: of the rank that differs, where ranks disagree, else the one that began first; of those
/// who were told that somebody else had ended a communicator only where there is no other.
pub(crate) fn blame(mut failures: Vec<Failure>) -> Option<Failure> {
    let differs = failures.iter().find_map(Failure::differs);
    let at_fault = |failure: &Failure| failure.differs().is_some() && Some(failure.rank) == differs;
    let order = |failure: &Failure| (!at_fault(failure), failure.is_told(), failure.since);
    let at = (0..failures.len()).min_by_key(|&at| order(&failures[at]))?;
    Some(failures.swap_remove(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disagreement(at: usize, rank: usize, operation: &'static str) -> Failure {
        let (expected, got) = (String::from("this"), String::from("that"));
        Failure::new(at, What::Error(Error::Disagreement { operation, rank, peer: 0, expected, got }))
    }

    fn error(reason: &str) -> Error {
        Error::InvalidUsage { operation: "the test", reason: reason.to_owned() }
    }

    fn other(at: usize) -> Failure {
        Failure::new(at, What::Error(error("")))
    }

    fn told(at: usize) -> Failure {
        Failure::new(at, What::Error(Error::Aborted { operation: "the test", reason: String::new() }))
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
        let panic = Failure::new(3, What::Panic(Box::new("because")));
        assert_eq!(blamed(vec![panic, other(1)]), Some(3));
    }

    /// Told that rank 1 has closed a communicator.
    fn left(at: usize) -> Failure {
        let (expected, got) = (String::new(), String::from("nothing: rank 1 has closed its communicator"));
        Failure::new(at, What::Error(Error::Disagreement { operation: "the test", rank: 1, peer: 0, expected, got }))
    }

    /// Rank 1 of a part, which is rank 3 or so here, differs from rank 0 of it.
    #[test]
    fn ranks_of_parts_have_other_numbers() {
        let of_part = |at| {
            let (expected, got) = (String::from("this"), String::from("that (ranks of the part of color 0)"));
            let error = Error::Disagreement { operation: "a", rank: 1, peer: 0, expected, got };
            Failure::new(at, What::Error(error))
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

    /// Who ends a communicator comes back when the others have failed already.
    #[test]
    fn who_began_is_at_fault() {
        begin(&error("out of memory"));
        let panic = |text: String| What::Panic(Box::new(text));
        let victim = std::thread::spawn(|| other(0)).join().unwrap();
        assert_eq!(blamed(vec![victim, Failure::new(1, What::Error(error("out of memory")))]), Some(1));
        begin(&error("out of memory"));
        let victim = std::thread::spawn(move || Failure::new(0, panic("victim".into()))).join().unwrap();
        let own = format!("called `Result::unwrap()` on an `Err` value: {:?}", error("out of memory"));
        assert_eq!(blamed(vec![victim, Failure::new(1, panic(own))]), Some(1));
        // What was noted of a failure that the rank has got over is no part of a later one.
        begin(&error("out of memory"));
        let first = std::thread::spawn(|| other(0)).join().unwrap();
        assert_eq!(blamed(vec![first, other(1)]), Some(0));
    }
}

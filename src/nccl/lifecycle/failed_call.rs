//! Ends the communicators of a call that failed after its ranks had agreed on it.

use std::time::Duration;

use super::abort::{GRACE, abort};
use super::root_cause;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::nccl::rank::inner::Inner;
use crate::nccl::raw::check;
use crate::shared_deadline::SharedDeadline;

/// The least time for the abort, also where the time of the call is over.
const A_MOMENT: Duration = Duration::from_millis(100);

/// Ends these communicators, and in a clique those of all ranks, after `operation` has failed between the agreement of its ranks
/// and its launch: other ranks may wait for this one within NCCL, and NCCL's state is unknown. Returns the error to report.
#[cold]
pub(crate) fn end(members: &[&Inner], operation: &'static str, error: Error) -> Error {
    end_counted(members, |_| true, operation, error)
}

/// As [`end`]. If one of them has ended before, of the others those end that have counted an operation, which this rank does not
/// launch.
#[cold]
pub(crate) fn end_counted(
    members: &[&Inner],
    has_counted: impl Fn(&Inner) -> bool,
    operation: &'static str,
    error: Error,
) -> Error {
    // The caller learns why.
    if let Some(dead) = members.iter().find_map(|inner| inner.refusal(operation)) {
        let goes_on = |inner: &&Inner| inner.refusal(operation).is_none() && has_counted(inner);
        let left: Vec<&Inner> = members.iter().copied().filter(goes_on).collect();
        if !left.is_empty() {
            end_all(&left, &dead.clone().noted("of another communicator, in whose operation it took part"));
        }
        let stayed_inside = || members.iter().find_map(|inner| inner.stayed_inside(operation));
        return match error {
            Error::Disagreement { .. } | Error::Timeout { .. } => error,
            Error::Nccl { .. } => stayed_inside().unwrap_or(dead),
            _ => dead,
        };
    }
    let error = check::lost(&error, members.iter().map(|inner| inner.device)).unwrap_or(error);
    root_cause::begin(&error);
    end_all(members, &error);
    error
}

fn end_all(members: &[&Inner], error: &Error) {
    // Before the abort, which takes a while: this process may end meanwhile.
    members.iter().for_each(|inner| inner.validation.announce_end(inner.rank, error));
    let everybody = Inner::cliques_of(members);
    // The abort belongs to the call, and to its time.
    let timeout = members.iter().map(|inner| inner.timeout()).min().unwrap_or_default();
    let time = SharedDeadline::within(timeout).remaining().min(GRACE).max(A_MOMENT);
    let _ = abort(&everybody, error, &Deadline::after(time));
}

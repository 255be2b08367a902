//! Finds waits for ranks of the clique that have left and take part in nothing more.
//!
//! Operations that such a rank has issued before are done. Any other wait for it ends the clique, like calls that do not match.
//! The thread that waits finds this, in a call or for the device. If a rank has closed its communicator, the rank that leaves
//! and the watchdog find it too.

use std::ops::RangeInclusive;

use super::explanation;
use crate::cuda::Stream;
use crate::error::{Error, Result};
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::recent::kept;
use crate::nccl::validate::ballot::Verdict;
use crate::nccl::validate::in_process::InProcess;
use crate::nccl::validate::presence::{self, Departure};

/// The operation of an error that is told to waits, each of which has a name of its own.
const WAIT: &str = "wait";

/// Why `inner` waits in vain for other ranks in a call of `operation`, before which they meet.
#[cold]
pub(crate) fn at_meeting(inner: &Inner, operation: &'static str) -> Option<Error> {
    let absent = inner.validation.in_process()?.signatures.meeting().missing(inner.rank);
    departure_error(inner, operation, explanation::launch(inner), |rank, _| absent.contains(&rank))
}

/// Why `inner` waits in vain for other ranks in a call of `operation` that is captured.
///
/// The launch of a graph records its operations. During the capture there is no record yet.
#[cold]
pub(crate) fn at_capture(inner: &Inner, operation: &'static str) -> Option<Error> {
    let in_process = inner.validation.in_process().filter(|_| inner.is_active())?;
    let absent = in_process.signatures.meeting().missing(inner.rank);
    let gone = |&rank: &usize| Some((rank, in_process.signatures.presence().departure(rank)?));
    let gone = absent.iter().filter_map(gone).find(|(rank, how)| is_through(inner, in_process, *rank, *how))?;
    Some(left(in_process, inner, gone, operation.to_owned()).error(operation))
}

/// Why `inner` waits in vain, in a call of `operation`, for these others to come to `expected`.
#[cold]
pub(crate) fn at_regroup(inner: &Inner, operation: &'static str, missing: &[usize], expected: &str) -> Option<Error> {
    let in_process = inner.validation.in_process()?;
    let gone = |&rank: &usize| Some((rank, in_process.signatures.presence().departure(rank)?));
    let (rank, how) = missing.iter().find_map(gone)?;
    Some(left(in_process, inner, (rank, how), expected.to_owned()).error(operation))
}

/// Why `inner` waits in vain, in a call of `operation`, for others to come to what it has issued long ago.
#[cold]
pub(crate) fn far_behind(inner: &Inner, operation: &'static str) -> Option<Error> {
    let behind: Vec<_> = inner.validation.in_process()?.signatures.collectives().behind(inner.rank).collect();
    departure_error(inner, operation, kept(inner.recent.last()), |rank, _| behind.contains(&rank))
}

/// Returns the error if a rank has left, and so operation `last` of `inner`, or an earlier one on any
/// stream, cannot complete.
#[cold]
pub(crate) fn on_device(inner: &Inner, last: u64) -> Option<Error> {
    departure_error(inner, WAIT, kept(last), |_, _| true)
}

/// Why anything that `inner` has issued is in vain: a rank has closed its communicator, and not come to that.
pub(crate) fn of_closed(inner: &Inner) -> Option<Error> {
    inner.validation.in_process().filter(|in_process| in_process.signatures.presence().any_closed())?;
    departure_error(inner, WAIT, kept(inner.recent.last()), |_, how| how == Departure::Closed)
}

/// The first operation of `inner` among these that a rank has not come to which has left, as an error of `operation`.
fn departure_error(
    inner: &Inner,
    operation: &'static str,
    numbers: RangeInclusive<u64>,
    which: impl Fn(usize, Departure) -> bool,
) -> Option<Error> {
    let in_process = inner.validation.in_process().filter(|_| inner.is_active())?;
    let presence = in_process.signatures.presence();
    // Read the departures before the progress: a departed rank makes no more.
    let others = (0..inner.size).filter(|rank| *rank != inner.rank);
    let gone = |rank| presence.departure(rank).filter(|how| which(rank, *how)).map(|how| (rank, how));
    let gone: Vec<_> = others.filter_map(gone).collect();
    if gone.is_empty() {
        return None;
    }
    numbers.filter_map(|number| inner.recent.get(number)).find_map(|record| {
        let missing = explanation::missing(in_process, inner.rank, &record);
        // Ending the clique would lose operations that this rank has issued and that are still running.
        let (rank, how) =
            *gone.iter().find(|(rank, how)| missing.contains(rank) && is_through(inner, in_process, *rank, *how))?;
        let expected = explanation::describe(inner.rank, &record);
        Some(left(in_process, inner, (rank, how), expected).error(operation))
    })
}

/// Whether others have not come to what `inner` has issued.
pub(crate) fn is_missed(inner: &Inner) -> bool {
    let misses =
        |in_process| inner.recent.all().any(|record| !explanation::missing(in_process, inner.rank, &record).is_empty());
    inner.validation.in_process().is_some_and(misses)
}

/// Whether all that `rank` of the clique of `own` has issued is done, or waits for others.
fn is_through(own: &Inner, in_process: &InProcess, rank: usize, how: Departure) -> bool {
    let Some(inner) = own.local_ranks.rank(rank).filter(|inner| !is_missed(inner)) else { return true };
    match how {
        // The close looks at the streams of that rank itself, which others may use by now.
        Departure::Closed => in_process.signatures.presence().is_idle(rank),
        Departure::Returned => {
            let streams = inner.try_lock().map(|guard| guard.streams.all().to_vec());
            streams.is_some_and(|streams| streams.iter().all(|stream| check_idle(stream).unwrap_or(true)))
        }
    }
}

/// Whether the device is done with what is on `stream`; what was well stays so, whatever becomes of the communicators.
pub(crate) fn check_idle(stream: &Stream) -> Result<bool> {
    let origins = stream.history().origins();
    // Of one that is being captured it is known only what was seen before.
    let done = stream.is_idle()? || (stream.is_captured() && stream.in_flight().places() == 0);
    if done {
        // A wait for that work reports a failure.
        let _ = origins.judge(WAIT);
    }
    Ok(done)
}

/// Why `inner` has to wait for these, the streams that are not [idle](check_idle).
pub(crate) fn why_busy(inner: &Inner, streams: &[Stream]) -> String {
    let rank = inner.in_words();
    if streams.iter().all(Stream::is_captured) {
        return format!("{rank} has used a stream that is being captured, so that nobody can ask whether it is done");
    }
    let pending = streams.last().map(|stream| stream.history().origins().pending()).unwrap_or_default();
    format!("{rank} has work in flight{pending}")
}

/// What holds after `inner` has found that `rank` has left, from which it expects something.
fn left<'p>(
    in_process: &'p InProcess,
    inner: &Inner,
    (rank, how): (usize, Departure),
    expected: String,
) -> &'p Verdict {
    let signatures = &in_process.signatures;
    let how = presence::gone(rank, how, signatures.collectives().passed(rank), signatures.last_of(rank));
    signatures.decide(Verdict::departed(rank, inner.rank, expected, how))
}

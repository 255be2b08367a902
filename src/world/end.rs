//! The end of a world.

use std::sync::Arc;
use std::time::Duration;

use super::core::{Core, PATIENCE, refuse};
use super::failure_reason::{Reason, SUBMIT};
use super::health::Phase;
use super::listen::{LOOK, TELL};
use super::note::Note;
use super::rank_thread::Generation;
use super::threads::wait_for;
use crate::cuda::{is_forked, refuse_in_child};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::nccl::{DropTime, GRACE, close_all_timeout};

const CLOSE: &str = "World::close";

const ABORT: &str = "World::abort";

/// Ends it, once what was submitted is done. Nothing is left when this returns, but for threads that
/// are stuck inside NCCL.
pub(super) fn close(core: &Core, timeout: Duration) -> Result<()> {
    refuse_in_child(CLOSE, "CUDA")?;
    finish_by(core, None, &Deadline::after(timeout))
}

/// The same at once: what is under way fails for `reason`.
pub(super) fn abort(core: &Core, reason: &str) -> Result<()> {
    refuse_in_child(ABORT, "CUDA")?;
    let cause = Error::Aborted { operation: ABORT, reason: reason.into() }.about(core.name.world());
    finish_by(core, Some(cause), &Deadline::after(GRACE))
}

fn finish_by(core: &Core, abort: Option<Error>, deadline: &Deadline) -> Result<()> {
    let patience = || deadline.remaining().clamp(A_SECOND, PATIENCE);
    finish(core, abort, (deadline, deadline), A_SECOND, patience, || ())
}

/// The least time that an end gives what is to end.
const A_SECOND: Duration = Duration::from_secs(1);

/// The least time that a drop gives what is to end.
const LEAST: Duration = Duration::from_millis(100);

/// Ends it when it is dropped: as [`close`], within the time that all drops of a thread share.
pub(super) fn end_in_drop(core: &Core) {
    // The threads that would end are not in a forked child.
    // An end that was asked for, or that has given up, has waited already.
    if is_forked() || matches!(core.health_state.now(), (_, Phase::Closed)) {
        return;
    }
    let abort = std::thread::panicking().then(|| closed("World"));
    let time = DropTime::begin(core.options.init.timeout);
    let (work, whole) = (time.for_work(), time.whole());
    let patience = || whole.remaining().clamp(LEAST, PATIENCE);
    let mut time = Some(time);
    let record_timeout = || time.take().into_iter().for_each(DropTime::record_timeout);
    let _ = finish(core, abort, (&work, &whole), LEAST, patience, record_timeout);
    time.into_iter().for_each(DropTime::went_on);
}

/// How long it waits for the threads that use the store. They look twice in this time whether they are to end.
const THREADS: Duration = LOOK.saturating_mul(2);

/// Ends it: what was submitted has time until the first deadline, unless an `abort` says why it has
/// not, and all has until the second, but `least` to be closed.
/// If it does not end by itself, `patience` says how long what the abort has stopped may take, and
/// `record_timeout` is called after that.
fn finish(
    core: &Core,
    abort: Option<Error>,
    (work, whole): (&Deadline, &Deadline),
    least: Duration,
    patience: impl FnOnce() -> Duration,
    record_timeout: impl FnOnce(),
) -> Result<()> {
    // Before it waits for the turn: a rebuild that is under way ends then.
    if !core.health_state.closed() {
        return Ok(());
    }
    // A rebuild may be inside a call of NCCL or of a store that does not answer. It ends what comes of it.
    let _turn = core.turn_until(&Deadline::after(PATIENCE.min(work.remaining())));
    core.close_next();
    let withdrawing = core.withdraw();
    let Some(generation) = core.now() else {
        core.settle();
        return Ok(());
    };
    // What others are told is that it has failed, where it has.
    let failed = core.health_state.health().cause;
    let in_order = failed.is_none() && abort.is_none();
    let done = match failed.or(abort) {
        Some(cause) => Err(cause),
        None => drain(core, &generation, work),
    };
    core.settle();
    if let Err(cause) = &done {
        core.end(&generation, cause, patience());
        record_timeout();
    } else {
        core.tell_others(&Note::Left(generation.issued())).wait(TELL.min(whole.remaining().max(least)));
    }
    withdrawing.wait(TELL.min(whole.remaining().max(least)));
    let ended = close_communicators(core, &generation, done.is_ok(), whole.remaining().max(least));
    let _ = wait_for(&core.take_threads(), &Deadline::after(THREADS.min(whole.remaining().max(least))));
    if in_order { done.and(ended) } else { Ok(()) }
}

fn closed(operation: &'static str) -> Error {
    Error::Aborted { operation, reason: "it was closed".into() }.about(Some("the world".into()))
}

/// Lets what was submitted be done.
fn drain(core: &Core, generation: &Generation, deadline: &Deadline) -> Result<()> {
    let closed = closed(SUBMIT);
    for (_, queue) in &generation.queues {
        queue.close(Reason::Closed, &closed, true).refuse(Reason::Closed, &closed);
    }
    // Requests that came until now are done, and keep their deadlines and their order until then.
    core.settle();
    let left = || match core.pending() {
        0 => "requests that were submitted in order are not done".to_owned(),
        pending => format!("{pending} requests are not done"),
    };
    deadline.poll(CLOSE, left, || match (generation.cause.get(), core.pending()) {
        (Some(cause), _) => Err(cause.clone()),
        (None, 0) if generation.is_idle() => Ok(true),
        (None, _) => generation.failure().map_or(Ok(false), Err),
    })
}

/// Closes the communicators, and waits for the threads.
fn close_communicators(core: &Core, generation: &Generation, well: bool, time: Duration) -> Result<()> {
    let grace = Deadline::after(time);
    // Room that somebody still has for a request holds up no thread.
    generation.queues.iter().for_each(|(_, queue)| refuse(queue, Reason::Closed, &closed(SUBMIT)));
    for rank_thread in &generation.rank_threads {
        rank_thread.join(&grace);
    }
    // Buffers that nobody wants may keep communicators alive; a destructor that blocks does not hold this up.
    let patience = Deadline::after(grace.remaining().min(Duration::from_secs(1)));
    while !core.counters.all_dropped() && !patience.expired() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let taken = generation.rank_threads.iter().filter_map(|rank_thread| rank_thread.take_communicator());
    // What somebody's buffer keeps alive is closed when that is dropped.
    let communicators: Vec<_> = taken.filter_map(Arc::into_inner).collect();
    let mut result = Ok(());
    if well {
        for closed in close_all_timeout(communicators, grace.remaining()) {
            result = result.and(closed);
        }
    } else {
        drop(communicators);
    }
    result
}

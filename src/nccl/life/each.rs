//! The ends of several communicators at the same time, each with an answer of its own.
//!
//! One after the other, each would wait for what the others do on its devices, and where processes end them in different orders, for ranks
//! that wait for it elsewhere. So all begin before any is waited for.

use std::sync::Arc;
use std::thread;

use super::abort::{AbortOutcome, abort, start_abort, wait_for_end};
use super::{closing, freeing};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::nccl::state::inner::Inner;

/// Closes all of `members`, ranks of one communicator together, and aborts those for which that fails.
pub(crate) fn close(members: &[Arc<Inner>], deadline: &Deadline) -> Vec<Result<()>> {
    let mut groups: Vec<Vec<Arc<Inner>>> = Vec::new();
    for inner in members {
        match groups.iter_mut().find(|group| Arc::ptr_eq(&group[0].household, &inner.household)) {
            Some(group) => group.push(Arc::clone(inner)),
            None => groups.push(vec![Arc::clone(inner)]),
        }
    }
    let answers: Vec<Result<()>> = thread::scope(|scope| {
        let run = |group: &Vec<Arc<Inner>>| close_or_abort(group, deadline);
        // This thread closes the first; and where no other can be had, the rest.
        let threads = groups.iter().skip(1).map(|group| {
            let builder = thread::Builder::new().name("gpucomm-closing".into());
            builder.spawn_scoped(scope, move || run(group)).map_err(|_| group)
        });
        let threads: Vec<_> = threads.collect();
        let first: Vec<_> = groups.first().map(run).into_iter().collect();
        let others = threads.into_iter().map(|thread| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(panicked())),
            Err(group) => run(group),
        });
        first.into_iter().chain(others).collect()
    });
    // Those that were held up by others, which have ended meanwhile.
    let closed = groups.iter().zip(&answers).filter(|(_, answer)| answer.is_ok()).flat_map(|(group, _)| group);
    let closed: Vec<_> = closed.cloned().collect();
    wait_for_end(&closed, &freeing::patience(&closed, deadline));
    let of = |inner: &Arc<Inner>| groups.iter().position(|group| Arc::ptr_eq(&group[0].household, &inner.household));
    members.iter().map(|inner| of(inner).map_or(Ok(()), |at| answers[at].clone())).collect()
}

/// Closes `members`. Where that fails, they are aborted, and all ranks of this process with them; that is not waited for.
pub(crate) fn close_or_abort(members: &[Arc<Inner>], deadline: &Deadline) -> Result<()> {
    members.iter().try_for_each(|inner| without_graphs(inner))?;
    let closed = closing::close(members, deadline);
    if let Err(error) = &closed {
        // Others may have revoked them meanwhile, and go on.
        let (revoked, members): (Vec<_>, Vec<_>) = members.iter().cloned().partition(|inner| inner.is_revoked());
        closing::end_revoked(&revoked, "close");
        let relatives: Vec<_> = members.iter().flat_map(|inner| inner.relatives()).collect();
        start_abort(&relatives, error);
    }
    closed
}

/// Refuses to close a communicator of which graphs hold operations.
fn without_graphs(inner: &Inner) -> Result<()> {
    if inner.is_revoked() {
        // None is launched any more.
        return Ok(());
    }
    if inner.graphs.open() > 0 {
        let reason = format!("a capture is under way that has operations of rank {}: end it before", inner.rank);
        return Err(Error::InvalidUsage { operation: "close", reason });
    }
    match inner.graphs.count() {
        0 => Ok(()),
        count => {
            let s = if count == 1 { "" } else { "s" };
            let reason = format!(
                "{count} graph{s} with operations of rank {} may still be launched: drop them before",
                inner.rank
            );
            Err(Error::InvalidUsage { operation: "close", reason })
        }
    }
}

#[cold]
fn panicked() -> Error {
    Error::InvalidUsage { operation: "close", reason: "the thread that closes it has panicked".to_owned() }
}

/// Aborts all of `members` because of `cause`; of those that are gone already nothing is left.
pub(crate) fn abort_each(members: &[Option<Arc<Inner>>], cause: &Error, deadline: &Deadline) -> Vec<AbortOutcome> {
    let lived = |inner: &Arc<Inner>| inner.is_active() || inner.is_revoked() || inner.is_suspended();
    let before: Vec<bool> = members.iter().map(|inner| inner.as_ref().is_some_and(lived)).collect();
    let mut all: Vec<Arc<Inner>> = Vec::new();
    for relative in members.iter().flatten().flat_map(|inner| inner.relatives()) {
        if !all.iter().any(|known| known.id == relative.id) {
            all.push(relative);
        }
    }
    let _ = abort(&all, cause, deadline);
    let answers = members.iter().zip(before).map(|(inner, lived)| match inner {
        Some(inner) if !inner.relatives().iter().all(|one| one.has_ended()) => AbortOutcome::StillRunning,
        Some(_) if lived => AbortOutcome::Done,
        _ => AbortOutcome::Already,
    });
    answers.collect()
}

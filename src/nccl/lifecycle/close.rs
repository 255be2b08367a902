//! Closes communicators: `ncclCommFinalize` and `ncclCommDestroy`, once their work is done.
//!
//! A rank is closed on its own thread. NCCL frees it with the other ranks of its process, and waits
//! for whole devices then. So several communicators are closed at the same time: one after the
//! other, each would wait for what the others do on its devices, and if two processes close them in
//! different orders, for ranks that wait for it elsewhere.

use std::cmp::Reverse;
use std::slice;
use std::sync::Arc;
use std::sync::mpsc;
use std::sync::mpsc::Sender;
use std::thread;

use super::abort::{abort_closing, abort_revoked, add_to_teardown, free_when_ready, start_abort, wait_for_end};
use super::release::{abort_one, let_go, remove_registered};
use super::{graph_ends, health, quiesce, reclaim, timeouts};
use crate::cuda::{self, Worker};
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};
use crate::nccl::flight::files::Trouble;
use crate::nccl::local_ranks::teardown::AfterClose;
use crate::nccl::rank::inner::Inner;
use crate::nccl::raw::check::check;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::validate::validator::Validator;
use crate::nccl::wait::begin_call::busy as busy_elsewhere;
use crate::nccl::wait::left_ranks;
use crate::sys;

const CLOSE: &str = "close";

/// Rounds of a wait for work after which a rank looks whether it waits for others.
const SOME: u32 = 256;

/// Closes all of `members`, which may be of several communicators. Aborts the communicators that it
/// cannot close. Returns one result for each.
pub(crate) fn close_each(members: &[Arc<Inner>], deadline: &Deadline) -> Vec<Result<()>> {
    let mut groups: Vec<Vec<Arc<Inner>>> = Vec::new();
    for inner in members {
        match groups.iter_mut().find(|group| Arc::ptr_eq(&group[0].local_ranks, &inner.local_ranks)) {
            Some(group) => group.push(Arc::clone(inner)),
            None => groups.push(vec![Arc::clone(inner)]),
        }
    }
    let wait = timeouts::Wait::begin();
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let run = |group: &Vec<Arc<Inner>>| close_group(group, deadline);
        // This thread closes the first, and those for which no thread can be started.
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
    // Some were held up by others that have ended meanwhile.
    let closed = groups.iter().zip(&results).filter(|(_, result)| result.is_ok()).flat_map(|(group, _)| group);
    let closed: Vec<_> = closed.cloned().collect();
    let are_freed = wait_for_end(&closed, &quiesce::patience(&closed, deadline));
    if !are_freed || results.iter().any(is_late) {
        wait.record_timeout();
    }
    let group_of =
        |inner: &Arc<Inner>| groups.iter().position(|group| Arc::ptr_eq(&group[0].local_ranks, &inner.local_ranks));
    members.iter().map(|inner| group_of(inner).map_or(Ok(()), |at| results[at].clone())).collect()
}

/// Closes `members`. If that fails, aborts them, and all ranks of this process with them, without
/// waiting.
pub(crate) fn close_or_abort(members: &[Arc<Inner>], deadline: &Deadline) -> Result<()> {
    let wait = timeouts::Wait::begin();
    let closed = close_group(members, deadline);
    if is_late(&closed) {
        wait.record_timeout();
    }
    closed
}

fn is_late(closed: &Result<()>) -> bool {
    matches!(closed, Err(Error::Timeout { .. }))
}

fn close_group(members: &[Arc<Inner>], deadline: &Deadline) -> Result<()> {
    // The caller drops them then, and waits no longer for that.
    let limit = |_: &Error| members.iter().for_each(|inner| inner.limit_end(deadline.timeout()));
    members.iter().try_for_each(|inner| refuse_graphs(inner)).inspect_err(limit)?;
    let closed = close(members, deadline);
    timeouts::note_close(members, &closed);
    if let Err(error) = &closed {
        // Other threads may have revoked some of them meanwhile: those end alone.
        let (revoked, members): (Vec<_>, Vec<_>) = members.iter().cloned().partition(|inner| inner.is_revoked());
        abort_revoked(&revoked, CLOSE);
        start_abort(&Inner::cliques_of(&members), error);
    }
    closed
}

/// Refuses to close a communicator of which graphs hold operations.
fn refuse_graphs(inner: &Inner) -> Result<()> {
    if inner.is_revoked() {
        // None is launched any more.
        return Ok(());
    }
    if inner.graphs.open() > 0 {
        let reason = format!("a capture is under way that has operations of {}: end it before", inner.in_words());
        return Err(Error::InvalidUsage { operation: CLOSE, reason });
    }
    match inner.graphs.count() {
        0 => Ok(()),
        count => {
            let s = if count == 1 { "" } else { "s" };
            let reason = format!(
                "{count} graph{s} with operations of {} may still be launched: drop them before",
                inner.in_words()
            );
            Err(Error::InvalidUsage { operation: CLOSE, reason })
        }
    }
}

#[cold]
fn panicked() -> Error {
    Error::InvalidUsage { operation: CLOSE, reason: "the thread that closes it has panicked".to_owned() }
}

/// Waits for the work of `members`, and finalizes and destroys them, all at the same time.
///
/// # Errors
/// Members that are still active stay so: the caller aborts them.
pub(crate) fn close(members: &[Arc<Inner>], deadline: &Deadline) -> Result<()> {
    let closed = close_within(members, deadline);
    if let Err(error @ Error::Timeout { .. }) = &closed {
        let open: Vec<_> = members.iter().filter(|inner| !inner.has_ended()).map(|inner| (&**inner, error)).collect();
        if !open.is_empty() {
            Trouble::of(open).write();
        }
    }
    closed
}

fn close_within(members: &[Arc<Inner>], deadline: &Deadline) -> Result<()> {
    outside_of_host_functions(CLOSE)?;
    let (revoked, members): (Vec<_>, Vec<_>) = members.iter().cloned().partition(|inner| inner.is_revoked());
    abort_revoked(&revoked, CLOSE);
    if members.is_empty() && !revoked.is_empty() {
        wait_for_end(&revoked, deadline);
        return Ok(());
    }
    let members = &*members;
    wait_for_work(members, deadline)?;
    // From here on their work is known to be right, whatever becomes of the end.
    members.iter().try_for_each(|inner| inner.health()).map_err(|error| error.met_by(CLOSE))?;
    let mut closed = Ok(());
    let closing: Vec<_> = members
        .iter()
        .filter(|inner| {
            let first = inner.mark_closing();
            if !first && closed.is_ok() {
                closed = Err(inner.dead(CLOSE));
            }
            first
        })
        .collect();
    for inner in &closing {
        closed = closed.and_then(|()| is_fit(inner, deadline));
    }
    let (sender, finalized) = mpsc::channel();
    let (last, ends) = mpsc::channel();
    let unfit = closed.as_ref().err();
    for inner in &closing {
        let (inner, unfit) = (Arc::clone(inner), unfit.cloned());
        let (sender, last) = (sender.clone(), last.clone());
        inner.clone().helper().run(move || {
            let abort = |cause: Error| {
                abort_closing(&inner, &cause);
                let _ = sender.send(Err(cause));
            };
            match unfit {
                Some(cause) => abort(cause),
                None => destroy_when_ready(&inner, abort, &sender, &last),
            }
        });
    }
    drop((sender, last));
    let late = || deadline.error(CLOSE, "NCCL goes on ending the communicator by itself");
    for _ in &closing {
        closed = closed.and(finalized.recv_timeout(deadline.remaining()).map_err(|_| late())?);
    }
    let freed = quiesce::wait(members, &ends, deadline, late);
    if let Ok(true) = freed {
        // Other streams may still use memory that was dropped. That is no failure.
        members.iter().for_each(|inner| {
            let _ = reclaim::drain(inner.id, deadline);
        });
    }
    closed.and(freed.map(drop))
}

/// Tells the other ranks that `inner` will issue nothing more, and that its work is done. Those
/// that wait for more of it end.
fn announce_end(inner: &Inner) {
    inner.validation.on_departure(inner, &mut |other, error| {
        start_abort(&other.clique_ranks(), error);
    });
}

/// Waits until no thread is inside NCCL on `inner`, which the caller has marked closed, and returns
/// the error that NCCL reports. A communicator with an error must not be destroyed: that leaves the
/// group depth of the thread raised.
pub(super) fn is_fit(inner: &Inner, deadline: &Deadline) -> Result<()> {
    if !deadline.wait(|| inner.is_left()) {
        return Err(busy_elsewhere(inner, CLOSE, deadline));
    }
    // SAFETY: the handle is live, and this thread alone may end the communicator.
    unsafe { health::async_error(inner.handle()) }
}

/// Finalizes and destroys `inner`, whose gate is shut and empty, and which has no error. If it
/// shares its resources, the last of those that share them destroys all. Reports to `finalized`,
/// and then to `destroyed`.
fn destroy_when_ready(
    inner: &Arc<Inner>,
    abort: impl FnOnce(Error),
    finalized: &Sender<Result<()>>,
    destroyed: &Sender<Result<()>>,
) {
    let teardown = inner.local_ranks.teardown();
    let mut all = match teardown.close(Arc::clone(inner)) {
        AfterClose::DestroyAll(all) => all,
        AfterClose::Wait => {
            let _ = finalized.send(Ok(()));
            return;
        }
        AfterClose::Destroy => {
            if let Err(cause) = finalize(inner) {
                return abort(cause);
            }
            let _ = finalized.send(Ok(()));
            let this = slice::from_ref(inner);
            quiesce::wait_for_devices(this, || {});
            let _ = destroyed.send(quiesce::undisturbed(this, || destroy(inner)));
            return;
        }
        AfterClose::Abort => {
            let _ = finalized.send(Ok(()));
            add_to_teardown(inner);
            return free_when_ready(inner);
        }
    };
    let _freeing = teardown.lock_freeing();
    // Parts come before what they were split off from.
    all.sort_unstable_by_key(|inner| Reverse(inner.id));
    let done = all.iter().try_for_each(|inner| {
        cuda::settle(inner.device)?;
        // SAFETY: the handle is live, and this thread alone may end the communicator, which may
        // have got an error while it waited.
        unsafe { health::async_error(inner.handle()) }?;
        finalize(inner)
    });
    let fit = done.is_ok();
    let _ = finalized.send(done);
    // A communicator that was shrunk from others ends by itself, while those go on.
    quiesce::wait_for_devices(&all, || {});
    let ended = quiesce::undisturbed(&all, || {
        let mut ended = Ok(());
        for inner in &all {
            // Streams are dropped on a thread whose device is theirs.
            let _ = cuda::settle(inner.device);
            // Destroying a communicator that has an error leaves NCCL's group depth raised, and
            // what this thread does next undone.
            // SAFETY: the handle is live, and this thread alone ends the communicator.
            ended = ended.and_then(|()| unsafe { health::async_error(inner.handle()) });
            // Once one is aborted, so are all: they share the flag.
            if fit && ended.is_ok() { ended = destroy(inner) } else { abort_one(inner) }
        }
        ended
    });
    let _ = destroyed.send(ended);
}

/// Finalizes `inner`, whose gate is shut and empty, and which has no error. No thread is inside a
/// communicator that shares its resources, and no other thread ends one.
fn finalize(inner: &Arc<Inner>) -> Result<()> {
    graph_ends::end(inner);
    remove_registered(inner);
    // SAFETY: the handle is live, and no other thread uses it: only the one that has shut the gate
    // comes here.
    check("ncclCommFinalize", unsafe { sys::ncclCommFinalize(inner.handle().raw()) })
}

/// Destroys `inner`, which was finalized.
fn destroy(inner: &Arc<Inner>) -> Result<()> {
    // SAFETY: as in `finalize`; a finalized communicator is destroyed once.
    let destroyed = check("ncclCommDestroy", unsafe { sys::ncclCommDestroy(inner.handle().raw()) });
    let_go(inner);
    destroyed
}

/// Waits until the work of `members` is done.
pub(super) fn wait_for_work(members: &[Arc<Inner>], deadline: &Deadline) -> Result<()> {
    let mut busy = Vec::new();
    for inner in members {
        if let Some(error) = inner.refusal(CLOSE) {
            return Err(error);
        }
        match inner.lock_within(deadline) {
            Some(guard) => busy.push((inner, guard.streams.all().to_vec(), false)),
            None => return Err(busy_elsewhere(inner, CLOSE, deadline)),
        }
    }
    let mut round = 0;
    loop {
        for (inner, streams, has_left) in &mut busy {
            while let Some(stream) = streams.last()
                && left_ranks::check_idle(stream).map_err(|error| error.met_by(CLOSE))?
            {
                streams.pop();
            }
            if streams.is_empty() {
                inner
                    .validation
                    .in_process()
                    .iter()
                    .for_each(|in_process| in_process.signatures.presence().set_idle(inner.rank));
            }
            // A rank that waits for others may do so for ever, and they for it.
            let waits = || round >= SOME && left_ranks::is_missed(inner);
            if !*has_left && (streams.is_empty() || waits()) {
                *has_left = true;
                announce_end(inner);
            }
        }
        busy.retain(|(_, streams, _)| !streams.is_empty());
        let Some((inner, streams, _)) = busy.first() else { return Ok(()) };
        if let Some(error) = busy.iter().find_map(|(inner, ..)| inner.refusal(CLOSE)) {
            return Err(error);
        }
        if deadline.expired() {
            return Err(deadline.error(CLOSE, left_ranks::why_busy(inner, streams)).waited_by(inner.rank));
        }
        backoff(round);
        round += 1;
    }
}

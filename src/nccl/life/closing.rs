//! The orderly end of a communicator: finalize and destroy, once, on its own thread, when its work is done.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::slice;
use std::sync::Arc;
use std::sync::mpsc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::abort::{GRACE, give_up, start_abort, wait_for_end};
use super::release::{abort_one, end_graphs, let_go, take_off_registered};
use super::together::{doom, take_down};
use super::{freeing, health, reaper};
use crate::cuda::{self, Stream, Worker};
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};
use crate::nccl::flight::files::Trouble;
use crate::nccl::raw::check::check;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::state::inner::Inner;
use crate::nccl::state::together::Rest;
use crate::nccl::wait::departure;
use crate::nccl::wait::entry::busy as busy_elsewhere;
use crate::sys;

const CLOSE: &str = "close";

/// Rounds of a wait for work after which a rank looks whether it waits for others.
const SOME: u32 = 256;

/// Finalizes and destroys `members` after their operations have completed, all at the same time.
///
/// On an error, those that are still active stay so: abort them.
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
    end_revoked(&revoked, "close");
    if members.is_empty() && !revoked.is_empty() {
        wait_for_end(&revoked, deadline);
        return Ok(());
    }
    let members = &*members;
    wait_for_work(members, deadline)?;
    // What they did is well, then, whatever becomes of the end.
    members.iter().try_for_each(|inner| inner.health()).map_err(|error| error.met_by(CLOSE))?;
    let mut closed = Ok(());
    let retired: Vec<_> = members
        .iter()
        .filter(|inner| {
            let first = inner.retire();
            if !first && closed.is_ok() {
                closed = Err(inner.dead(CLOSE));
            }
            first
        })
        .collect();
    for inner in &retired {
        closed = closed.and_then(|()| is_fit(inner, deadline));
    }
    let (sender, finalized) = mpsc::channel();
    let (last, ends) = mpsc::channel();
    let unfit = closed.as_ref().err();
    for inner in &retired {
        let (inner, unfit) = (Arc::clone(inner), unfit.cloned());
        let (sender, last) = (sender.clone(), last.clone());
        inner.clone().helper().run(move || {
            let give_up = |cause: Error| {
                give_up(&inner, &cause);
                let _ = sender.send(Err(cause));
            };
            match unfit {
                Some(cause) => give_up(cause),
                None => rest(&inner, give_up, &sender, &last),
            }
        });
    }
    drop((sender, last));
    let late = || deadline.error(CLOSE, "NCCL goes on ending the communicator by itself");
    for _ in &retired {
        closed = closed.and(finalized.recv_timeout(deadline.remaining()).map_err(|_| late())?);
    }
    let freed = freeing::wait(members, &ends, deadline, late);
    if let Ok(true) = freed {
        // What other streams still do with memory that was dropped is no reason to fail.
        members.iter().for_each(|inner| {
            let _ = reaper::drain(inner.id, deadline);
        });
    }
    closed.and(freed.map(drop))
}

/// Ends those that were revoked, which NCCL finalizes no more.
pub(crate) fn end_revoked(revoked: &[Arc<Inner>], operation: &'static str) {
    if !revoked.is_empty() {
        let reason = "it was revoked, and closed or dropped then".to_owned();
        start_abort(revoked, &Error::Aborted { operation, reason });
    }
}

/// `inner` comes to nothing more, and what it had come to is done: whoever waits for it is told.
fn leave(inner: &Inner) {
    let Some(family) = &inner.family else {
        return inner.checked.get().into_iter().for_each(|checked| checked.leave());
    };
    family.ledger.presence().close(inner.rank);
    for other in inner.relatives() {
        if let Some(error) = departure::of_closed(&other) {
            start_abort(&other.relatives(), &error);
        }
    }
}

/// Whether `inner`, which the caller has retired, can be destroyed: destroying a communicator that has an error leaves NCCL's
/// group depth raised.
pub(super) fn is_fit(inner: &Inner, deadline: &Deadline) -> Result<()> {
    let mut round = 0;
    while !inner.is_left() {
        if deadline.expired() {
            return Err(busy_elsewhere(inner, CLOSE, deadline));
        }
        backoff(round);
        round += 1;
    }
    // SAFETY: the handle is live, and this thread alone may end the communicator.
    unsafe { health::async_error(inner.handle()) }
}

/// Has `inner`, whose gate is shut and empty, and which has no error, be destroyed; with sharers when the last of those comes here that
/// share its resources.
fn rest(
    inner: &Arc<Inner>,
    give_up: impl FnOnce(Error),
    finalized: &Sender<Result<()>>,
    destroyed: &Sender<Result<()>>,
) {
    let together = inner.household.together();
    let mut all = match together.rest(Arc::clone(inner)) {
        Rest::Last(all) => all,
        Rest::Rests => {
            let _ = finalized.send(Ok(()));
            return;
        }
        Rest::Apart => {
            if let Err(cause) = finalize(inner) {
                return give_up(cause);
            }
            let _ = finalized.send(Ok(()));
            let this = slice::from_ref(inner);
            freeing::wait_for_devices(this, || {});
            let _ = destroyed.send(freeing::undisturbed(this, || destroy(inner)));
            return;
        }
        Rest::Failed => {
            let _ = finalized.send(Ok(()));
            doom(inner);
            return take_down(inner);
        }
    };
    let _ending = together.ending();
    // What was split off from others comes before them.
    all.sort_unstable_by_key(|inner| Reverse(inner.id));
    let done = all.iter().try_for_each(|inner| {
        cuda::settle(inner.device)?;
        // SAFETY: the handle is live, and this thread alone may end the communicator, which may have an error since it rests.
        unsafe { health::async_error(inner.handle()) }?;
        finalize(inner)
    });
    let fit = done.is_ok();
    let _ = finalized.send(done);
    // What was shrunk from others that share does so by itself, while those go on.
    freeing::wait_for_devices(&all, || {});
    let ended = freeing::undisturbed(&all, || {
        let mut ended = Ok(());
        for inner in &all {
            // Streams go on a thread of their device.
            let _ = cuda::settle(inner.device);
            // Destroying a communicator that has an error leaves NCCL's group depth raised, and what this thread does next undone.
            // SAFETY: the handle is live, and this thread alone ends the communicator.
            ended = ended.and_then(|()| unsafe { health::async_error(inner.handle()) });
            // The flag of one that is aborted is that of all.
            if fit && ended.is_ok() { ended = destroy(inner) } else { abort_one(inner) }
        }
        ended
    });
    let _ = destroyed.send(ended);
}

/// Finalizes `inner`, whose gate is shut and empty, and which has no error; nobody is inside what shares its resources, and no other
/// thread ends that.
fn finalize(inner: &Arc<Inner>) -> Result<()> {
    end_graphs(inner);
    take_off_registered(inner);
    // SAFETY: the handle is live, and nobody else uses it any more: only who has shut the gate comes here.
    check("ncclCommFinalize", unsafe { sys::ncclCommFinalize(inner.handle().raw()) })
}

/// Destroys `inner`, which was finalized.
fn destroy(inner: &Arc<Inner>) -> Result<()> {
    // SAFETY: as in `finalize`; a finalized communicator is destroyed once.
    let destroyed = check("ncclCommDestroy", unsafe { sys::ncclCommDestroy(inner.handle().raw()) });
    let_go(inner);
    destroyed
}

/// Waits until all that was enqueued is done.
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
                && departure::settle(stream).map_err(|error| error.met_by(CLOSE))?
            {
                streams.pop();
            }
            if streams.is_empty() {
                inner.family.iter().for_each(|family| family.ledger.presence().settle(inner.rank));
            }
            // One that waits for others itself may do so for ever, and others for it.
            let waits = || round >= SOME && departure::is_missed(inner);
            if !*has_left && (streams.is_empty() || waits()) {
                *has_left = true;
                leave(inner);
            }
        }
        busy.retain(|(_, streams, _)| !streams.is_empty());
        let Some((inner, streams, _)) = busy.first() else { return Ok(()) };
        if let Some(error) = busy.iter().find_map(|(inner, ..)| inner.refusal(CLOSE)) {
            return Err(error);
        }
        if deadline.expired() {
            return Err(deadline.error(CLOSE, departure::unsettled(inner, streams)));
        }
        backoff(round);
        round += 1;
    }
}

/// How long a drop waits for work that this thread, or a wait for a stream of it, has given up already.
const AGAIN: Duration = Duration::from_millis(100);

/// Within this time, drops of one thread are one, as at the end of a scope.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Within this time, what a drop of a thread has waited for in vain is not waited for by the next.
const SOON: Duration = Duration::from_secs(1);

/// What a drop keeps of its time for the end of what it has aborted, if it has as much.
const ENDING: Duration = Duration::from_secs(2);

/// Drops of a thread that came one after the other and have waited in vain.
#[derive(Clone, Default)]
struct InVain {
    /// The end of the last one.
    last: Option<Instant>,
    /// How long they took in all.
    spent: Duration,
    /// The streams that were not done, by their serial numbers.
    streams: Vec<u64>,
}

thread_local! {
    static IN_VAIN: RefCell<InVain> = RefCell::default();
}

impl InVain {
    /// Those of this thread, if the last one was a moment ago. Of a thread that goes away nothing is known.
    fn recent() -> Self {
        let mut known = IN_VAIN.try_with(|all| all.borrow().clone()).unwrap_or_default();
        let age = known.last.map_or(Duration::MAX, |last| last.elapsed());
        if age >= AT_ONCE {
            known.spent = Duration::ZERO;
        }
        if age < SOON { known } else { Self::default() }
    }

    /// One more has begun at `start`, and waited for `streams`.
    fn add(mut self, start: Instant, streams: Vec<u64>) {
        self.last = Some(Instant::now());
        self.spent += start.elapsed();
        self.streams.extend(streams);
        let _ = IN_VAIN.try_with(|all| all.replace(self));
    }
}

/// The streams of `members` that are not done.
fn busy(members: &[Arc<Inner>]) -> Vec<Stream> {
    let streams = members.iter().filter_map(|inner| Some(inner.try_lock()?.streams.all().to_vec())).flatten();
    streams.filter(|stream| !stream.is_drained().unwrap_or(true)).collect()
}

/// Drops communicators: closes them, or aborts them and all ranks of this process with them if the close fails or takes too long.
/// Takes at most the smaller of [`GRACE`] and their timeout, for all that a thread drops one after the other.
pub(crate) fn drop_all(members: &[Arc<Inner>]) {
    let alive = members.iter().filter(|inner| inner.is_active() || inner.is_revoked() || inner.is_suspended()).cloned();
    let (revoked, active): (Vec<_>, Vec<_>) = alive.partition(|inner| inner.is_revoked());
    if cuda::in_host_function() {
        // NCCL must not be called here, and still needs what it has pointers into.
        std::mem::forget((active, revoked));
        return;
    }
    end_revoked(&revoked, "drop");
    let Some(timeout) = active.iter().map(|inner| inner.timeout()).min() else {
        return wait_for_what_is_left(members);
    };
    let (start, in_vain) = (Instant::now(), InVain::recent());
    let whole = Deadline::after(GRACE.min(timeout).saturating_sub(in_vain.spent).max(AGAIN));
    let waits = if std::thread::panicking() { Vec::new() } else { busy(&active) };
    let for_work = whole.remaining().saturating_sub(ENDING.min(whole.remaining() / 5));
    let waited = |stream: &Stream| match stream.given_up() {
        _ if in_vain.streams.contains(&stream.serial()) => for_work,
        Some(Error::Timeout { timeout, .. }) => timeout,
        _ => Duration::ZERO,
    };
    // What was waited for already counts, also by others than this drop.
    let left = for_work.saturating_sub(waits.iter().map(waited).min().unwrap_or_default()).max(AGAIN);
    let deadline = Deadline::after(left);
    if std::thread::panicking() || close(&active, &deadline).is_err() {
        // Others may have revoked them meanwhile, and go on.
        let (revoked, active): (Vec<_>, Vec<_>) = active.into_iter().partition(|inner| inner.is_revoked());
        end_revoked(&revoked, "drop");
        let streams = if deadline.expired() { busy(&active) } else { Vec::new() };
        // A wait that was not over in time has said what hangs, if it was no shorter than this one.
        let is_long = |error: &Error| matches!(error, Error::Timeout { timeout: waited, .. } if *waited >= for_work);
        let reason = || Error::Aborted { operation: "drop", reason: why_dropped(&active) };
        let given_up = streams.iter().filter_map(Stream::given_up).find(is_long);
        let cause = given_up.unwrap_or_else(reason);
        let relatives: Vec<_> = active.iter().flat_map(|inner| inner.relatives()).collect();
        if start_abort(&relatives, &cause) {
            // NCCL frees nothing before the devices are done with all, also with what others do there.
            wait_for_end(&relatives, &whole);
        }
        if !streams.is_empty() || whole.expired() {
            in_vain.add(start, streams.iter().map(Stream::serial).collect());
        }
    }
}

/// Why `members` were not closed when they were dropped.
fn why_dropped(members: &[Arc<Inner>]) -> String {
    match (members, std::thread::panicking()) {
        ([one, ..], false) if one.is_suspended() => format!("rank {} was dropped while it was suspended", one.rank),
        ([one], true) => format!("rank {} was dropped by a thread that panics", one.rank),
        ([one], false) => format!("rank {} was dropped with work in flight", one.rank),
        (_, true) => "its ranks were dropped by a thread that panics".into(),
        (_, false) => "its ranks were dropped with work in flight".into(),
    }
}

/// Waits until none of `members`, which somebody has ended, writes into memory that may be freed next: not much longer than [`GRACE`]
/// after they were stopped, nor than a drop that ends them itself.
fn wait_for_what_is_left(members: &[Arc<Inner>]) {
    let (start, in_vain) = (Instant::now(), InVain::recent());
    let timeout = members.iter().map(|inner| inner.timeout()).min().unwrap_or(GRACE);
    // Even where operations may take less: nothing is freed that is written to, if that can be had.
    let whole = Deadline::after(timeout.clamp(ENDING, GRACE).saturating_sub(in_vain.spent));
    let mut round = 0;
    while members.iter().any(|inner| inner.fate().is_fresh_failure() && !inner.has_left()) {
        if whole.expired() {
            return in_vain.add(start, Vec::new());
        }
        backoff(round);
        round += 1;
    }
}

//! Making calls: agreement, order, the call itself, and the record of it.

use std::cell::Cell;
use std::sync::MutexGuard;

use super::call::{Call, Kind};
use super::check;
use super::ending;
use super::inner::{Guarded, Inner};
use super::ledger::Refusal;
use super::signature::Signature;
use crate::cuda::Access;
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};
use crate::sys;

thread_local! {
    /// Whether this thread is within the closure of a group.
    static IN_GROUP: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as being within a group, for as long as the guard lives.
#[derive(Debug)]
pub(crate) struct GroupMark(());

impl GroupMark {
    pub(crate) fn set(operation: &'static str) -> Result<Self> {
        if IN_GROUP.replace(true) {
            return Err(Error::InvalidUsage { operation, reason: "groups do not nest: one is open already".into() });
        }
        Ok(Self(()))
    }
}

impl Drop for GroupMark {
    fn drop(&mut self) {
        IN_GROUP.set(false);
    }
}

/// Refuses what cannot be part of a group.
#[inline]
pub(crate) fn outside_of_groups(operation: &'static str) -> Result<()> {
    if IN_GROUP.get() {
        return Err(Error::InvalidUsage {
            operation,
            reason: "within the closure of a group, call the methods of the group".into(),
        });
    }
    Ok(())
}

/// Makes one call, outside of any group.
#[inline]
pub(crate) fn one(call: &Call<'_>) -> Result<()> {
    outside_of_groups(call.operation)?;
    let inner = call.comm;
    let (mut guard, handle) = inner.enter(call.operation)?;
    guard.in_flight.make_room(inner, call.operation)?;
    order(call)?;
    let done = match agree(call) {
        // Nothing was agreed on, so the call may be made again.
        Err(error @ Error::Timeout { .. }) => return Err(error),
        agreed => agreed.and_then(|()| launch_one(call, &mut guard, handle)),
    };
    if let Err(error) = done {
        drop(guard);
        return Err(failed(&[inner], error));
    }
    Ok(())
}

#[inline]
fn launch_one(call: &Call<'_>, guard: &mut MutexGuard<'_, Guarded>, handle: sys::ncclComm_t) -> Result<()> {
    if call.count == 0 {
        return Ok(());
    }
    // SAFETY: the handle is live, as its lock is held; the regions were just ordered, and the ranks agree: in a clique
    // they have compared, and who made a communicator across processes has promised it.
    let result = call.comm.inside(|| unsafe { call.make(handle) });
    note(call);
    guard.in_flight.count(call.stream)?;
    check::check(call.kind.function(), result)
}

/// What an operation that may be several calls is made of. One call takes no memory of the heap.
#[derive(Default)]
pub(crate) struct Recorded<'a> {
    first: Option<Call<'a>>,
    others: Vec<Call<'a>>,
}

impl<'a> Recorded<'a> {
    #[inline]
    pub(crate) fn push(&mut self, call: Call<'a>) {
        match self.first {
            None => self.first = Some(call),
            Some(_) => self.others.push(call),
        }
    }

    /// Makes them: one call as it is, several as a group.
    pub(crate) fn submit(mut self) -> Result<()> {
        match self.first {
            None => Ok(()),
            Some(call) if self.others.is_empty() => one(&call),
            Some(call) => {
                outside_of_groups(call.operation)?;
                self.others.insert(0, call);
                group(&self.others)
            }
        }
    }
}

/// Makes calls as one group of NCCL. Nothing is submitted unless all communicators can take part and all ranks of this
/// process agree.
pub(crate) fn group(calls: &[Call<'_>]) -> Result<()> {
    let Some(first) = calls.first() else { return Ok(()) };
    let mut members: Vec<&Inner> = Vec::with_capacity(4);
    for call in calls {
        if !members.iter().any(|inner| inner.id == call.comm.id) {
            members.push(call.comm);
        }
    }
    // One order for all threads, so that two groups cannot wait for each other's locks.
    members.sort_unstable_by_key(|inner| inner.id);
    let mut entered = Vec::with_capacity(members.len());
    for inner in &members {
        let (mut guard, handle) = inner.enter(first.operation)?;
        guard.in_flight.make_room(inner, first.operation)?;
        entered.push((guard, handle));
    }
    let launched = launch_group(calls, &members, &mut entered);
    drop(entered);
    launched.map_err(|error| failed(&members, error))
}

fn launch_group(
    calls: &[Call<'_>],
    members: &[&Inner],
    entered: &mut [(MutexGuard<'_, Guarded>, sys::ncclComm_t)],
) -> Result<()> {
    for call in calls {
        agree(call)?;
    }
    let calls = || calls.iter().filter(|call| call.count > 0);
    for call in calls() {
        order(call)?;
    }
    if calls().next().is_none() {
        return Ok(());
    }
    let place = |call: &Call<'_>| members.iter().position(|inner| inner.id == call.comm.id).unwrap_or(0);
    let handles: Vec<_> = entered.iter().map(|(_, handle)| *handle).collect();
    let visits: Vec<_> = members.iter().map(|inner| inner.begin_visit()).collect();
    // SAFETY: ended below, whatever happens in between: nothing there panics or returns.
    let mut result = check::check("ncclGroupStart", unsafe { sys::ncclGroupStart() });
    if result.is_ok() {
        for call in calls() {
            // SAFETY: as in `launch_one`; the calls are made when the group ends, before the locks are given back.
            let code = unsafe { call.make(handles[place(call)]) };
            if let Err(error) = check::check(call.kind.function(), code)
                && result.is_ok()
            {
                result = Err(error);
            }
        }
        // SAFETY: this thread has opened the group above. After an error NCCL drops what was queued.
        let ended = check::check("ncclGroupEnd", unsafe { sys::ncclGroupEnd() });
        result = result.and(ended);
    }
    for (inner, visit) in members.iter().zip(visits) {
        inner.end_visit(visit);
    }
    for call in calls() {
        note(call);
        entered[place(call)].0.in_flight.remember_stream(call.stream);
    }
    for (inner, (guard, _)) in members.iter().zip(entered.iter_mut()) {
        // To the driver's queue a group is one launch a communicator.
        if let Some(call) = calls().find(|call| call.comm.id == inner.id) {
            guard.in_flight.count(call.stream)?;
        }
    }
    result
}

/// Compares with the other ranks of the clique.
#[inline]
fn agree(call: &Call<'_>) -> Result<()> {
    let inner = call.comm;
    let Some(family) = &inner.family else { return Ok(()) };
    let signature = Signature::of(call);
    let mut waiting = None;
    let mut wait = |round| keep_waiting(inner, call.operation, &mut waiting, round);
    let agreed = match call.kind {
        Kind::Send { peer } => family.ledger.message(inner.rank, peer, true, &signature, &mut wait),
        Kind::Recv { peer } => family.ledger.message(peer, inner.rank, false, &signature, &mut wait),
        _ => family.ledger.collective(inner.rank, &signature, &mut wait),
    };
    agreed.map(drop).map_err(|refusal| refused(call.operation, inner.rank, refusal, &signature))
}

/// One round of waiting for a rank that is far behind.
#[cold]
pub(crate) fn keep_waiting(
    inner: &Inner,
    operation: &'static str,
    waiting: &mut Option<Deadline>,
    round: u32,
) -> Result<()> {
    let deadline = waiting.get_or_insert_with(|| Deadline::after(inner.timeout()));
    if let Some(error) = inner.refusal(operation) {
        return Err(error);
    }
    if deadline.expired() {
        return Err(deadline.error(operation, "another rank of the clique is hundreds of operations behind"));
    }
    backoff(round);
    Ok(())
}

/// The error for a refusal of the ledger.
#[cold]
pub(crate) fn refused(operation: &'static str, rank: usize, refusal: Refusal, got: &Signature) -> Error {
    match refusal {
        Refusal::Behind(error) => error,
        Refusal::Disagreement { peer, expected } => {
            Error::Disagreement { operation, rank, peer, expected: expected.describe(), got: got.describe() }
        }
    }
}

/// Makes the stream wait for what conflicts with this call on other streams.
#[inline]
fn order(call: &Call<'_>) -> Result<()> {
    if let Some(send) = &call.send {
        send.alloc.order(Access::Read, call.stream)?;
    }
    if let Some(scalar) = &call.scalar {
        scalar.alloc.order(Access::Read, call.stream)?;
    }
    if let Some(recv) = &call.recv {
        recv.alloc.order(Access::Write, call.stream)?;
    }
    Ok(())
}

/// Records what this call uses.
#[inline]
fn note(call: &Call<'_>) {
    if let Some(send) = &call.send {
        send.alloc.note(Access::Read, call.stream);
    }
    if let Some(scalar) = &call.scalar {
        scalar.alloc.note(Access::Read, call.stream);
    }
    if let Some(recv) = &call.recv {
        recv.alloc.note(Access::Write, call.stream);
    }
}

/// After a failure between agreement and launch: the other ranks wait for what will not come, and NCCL's state is
/// unknown. So these communicators end, and in a clique those of all ranks.
#[cold]
pub(crate) fn failed(members: &[&Inner], error: Error) -> Error {
    // Who finds the communicator dead already reports why it died.
    if let Some(dead) = members.iter().find_map(|inner| inner.refusal(operation_of(&error))) {
        return if matches!(error, Error::Disagreement { .. }) { error } else { dead };
    }
    let everybody: Vec<_> = members.iter().flat_map(|inner| inner.relatives()).collect();
    let _ = ending::abort_all(&everybody, &error, &Deadline::after(ending::GRACE));
    error
}

/// The operation that an error names.
fn operation_of(error: &Error) -> &'static str {
    match error {
        Error::NoDevice { operation, .. }
        | Error::DriverTooOld { operation, .. }
        | Error::OutOfMemory { operation, .. }
        | Error::Cuda { operation, .. }
        | Error::Nccl { operation, .. }
        | Error::InvalidArgument { operation, .. }
        | Error::Disagreement { operation, .. }
        | Error::Timeout { operation, .. }
        | Error::Aborted { operation, .. }
        | Error::Unsupported { operation, .. }
        | Error::InvalidUsage { operation, .. } => operation,
        Error::LibraryTooOld { .. } => "version",
    }
}

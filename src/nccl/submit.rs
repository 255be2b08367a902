//! Making calls: agreement, order, the call itself, and the record of it.

use std::cell::Cell;
use std::convert::Infallible;
use std::ptr;

use smallvec::SmallVec;

use super::call::Call;
use super::check;
use super::ending;
use super::gate::Locked;
use super::inner::{self, Guarded, Inner};
use super::refusal::Refusal;
use super::signature::Signature;
use crate::cuda::{Access, LAUNCH, Region, Stream};
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
    make_room(call).map_err(|error| ended_if_lost(inner, error))?;
    let (mut guard, handle) = inner.enter(call.operation)?;
    if let Err(error) = order(call) {
        drop(guard);
        return Err(ended_if_lost(inner, error));
    }
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

/// Waits until the stream of `call` has room for it. Not under the lock, which an abort needs.
#[inline]
fn make_room(call: &Call<'_>) -> Result<()> {
    let inner = call.comm;
    call.stream.make_room(LAUNCH, call.operation, inner.timeout(), || inner.refusal(call.operation))
}

#[inline]
fn launch_one(call: &Call<'_>, guard: &mut Locked<'_, Guarded>, handle: sys::ncclComm_t) -> Result<()> {
    if call.count == 0 {
        return Ok(());
    }
    // SAFETY: the handle is live during a visit; the regions were just ordered, and the ranks agree: in a clique
    // they have compared, and who made a communicator across processes has promised it.
    let result = call.comm.inside(call.operation, || unsafe { call.make(handle) })?;
    if let Some(family) = &call.comm.family {
        family.ledger.look_ahead(call.comm.rank);
    }
    call.stream.count(LAUNCH);
    note(call);
    guard.streams.remember(call.stream);
    let (work, number) = guard.works.enqueued(call.comm, call.stream);
    call.carry(work, number, std::slice::from_ref(call));
    check::check(call.kind.function(), result)
}

/// The calls of one operation, or of a group. A few take no memory of the heap.
pub(crate) type Calls<'a> = SmallVec<[Call<'a>; 8]>;

/// Makes the calls of one operation: one as it is, several as a group.
#[inline]
pub(crate) fn all(calls: &[Call<'_>]) -> Result<()> {
    match calls {
        [] => Ok(()),
        [call] => one(call),
        [first, ..] => {
            outside_of_groups(first.operation)?;
            group(calls)
        }
    }
}

/// A communicator that takes part in a group.
struct Member<'a> {
    inner: &'a Inner,
    guard: Locked<'a, Guarded>,
    handle: sys::ncclComm_t,
}

type Members<'a> = SmallVec<[Member<'a>; 4]>;

/// Makes calls as one group of NCCL. Nothing is submitted unless all communicators can take part and all ranks of this
/// process agree.
pub(crate) fn group(calls: &[Call<'_>]) -> Result<()> {
    let Some(first) = calls.first() else { return Ok(()) };
    let mut inners: SmallVec<[&Inner; 4]> = SmallVec::new();
    for call in calls {
        if !inners.iter().any(|inner| inner.id == call.comm.id) {
            inners.push(call.comm);
        }
    }
    // One order for all threads, so that two groups cannot wait for each other's locks.
    inners.sort_unstable_by_key(|inner| inner.id);
    let launches = launches(calls);
    for call in &launches {
        make_room(call).map_err(|error| ended_if_lost(call.comm, error))?;
    }
    let launched = {
        let mut members = Members::new();
        for inner in &inners {
            let (guard, handle) = inner.enter(first.operation)?;
            members.push(Member { inner, guard, handle });
        }
        launch_group(calls, &launches, &mut members)
    };
    // The locks have been given back.
    launched.map_err(|error| failed(&inners, error))
}

fn launch_group(calls: &[Call<'_>], launches: &[&Call<'_>], members: &mut Members<'_>) -> Result<()> {
    expect(calls);
    for call in calls {
        agree(call)?;
    }
    let all = calls;
    let calls = || all.iter().filter(|call| call.count > 0);
    each_use(calls(), |region, access, stream| region.alloc.order(access, stream))?;
    if calls().next().is_none() {
        return Ok(());
    }
    let place = |call: &Call<'_>, members: &Members<'_>| {
        members.iter().position(|member| member.inner.id == call.comm.id).unwrap_or(0)
    };
    inner::begin_visits(
        members.iter().map(|member| member.inner),
        calls().next().map_or("group", |call| call.operation),
    )?;
    // SAFETY: ended below, whatever happens in between: nothing there panics or returns.
    let mut result = check::check("ncclGroupStart", unsafe { sys::ncclGroupStart() });
    if result.is_ok() {
        for call in calls() {
            // SAFETY: as in `launch_one`; the calls are made when the group ends, before the locks are given back.
            let code = unsafe { call.make(members[place(call, members)].handle) };
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
    members.iter().for_each(|member| member.inner.end_visit());
    launches.iter().for_each(|call| call.stream.count(LAUNCH));
    let Ok(()) = each_use(calls(), |region, access, stream| {
        region.alloc.note(access, stream);
        Ok::<_, Infallible>(())
    });
    // An abort has to know them.
    for call in calls() {
        let place = place(call, members);
        let member = &mut members[place];
        member.guard.streams.remember(call.stream);
        let (work, number) = member.guard.works.enqueued(member.inner, call.stream);
        call.carry(work, number, all);
    }
    result
}

/// The first call of each communicator on each of its streams: to the launch queue of a stream, a group is as much as one
/// launch of each communicator.
fn launches<'c, 'a>(calls: &'c [Call<'a>]) -> SmallVec<[&'c Call<'a>; 4]> {
    let mut firsts: SmallVec<[&Call<'_>; 4]> = SmallVec::new();
    for call in calls.iter().filter(|call| call.count > 0) {
        if !firsts.iter().any(|first| first.comm.id == call.comm.id && first.stream == call.stream) {
            firsts.push(call);
        }
    }
    firsts
}

/// Compares with the other ranks of the clique.
#[inline]
fn agree(call: &Call<'_>) -> Result<()> {
    let inner = call.comm;
    let Some(family) = &inner.family else { return Ok(()) };
    let mut waiting = None;
    let mut wait = |round| keep_waiting(inner, call.operation, &mut waiting, round);
    let what = (call.element, call.count);
    let agreed = match call.kind.message() {
        Some((end, peer)) => family.ledger.message((inner.rank, end), peer, what, &mut wait),
        None => family.ledger.collective(inner.rank, &Signature::of(call), &mut wait).map(drop),
    };
    agreed.map_err(|refusal| refused_call(call, refusal))
}

#[cold]
fn refused_call(call: &Call<'_>, refusal: Refusal) -> Error {
    refused(call.operation, call.comm.rank, refusal, &Signature::of(call))
}

/// Asks for the cache lines of messages that are about to be compared, all of them before the first is needed.
#[inline]
fn expect(calls: &[Call<'_>]) {
    for call in calls {
        if let (Some(family), Some((end, peer))) = (&call.comm.family, call.kind.message()) {
            family.ledger.expect_message((call.comm.rank, end), peer);
        }
    }
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
    call.uses(|region, access| region.alloc.order(access, call.stream))
}

/// Records what this call uses.
#[inline]
fn note(call: &Call<'_>) {
    let Ok(()) = call.uses(|region, access| {
        region.alloc.note(access, call.stream);
        Ok::<_, Infallible>(())
    });
}

/// Visits what calls use that are ordered, launched and noted together: where several after one another read, or write, parts
/// of one buffer, it counts once.
#[inline]
fn each_use<'c, 'a: 'c, E>(
    calls: impl Iterator<Item = &'c Call<'a>>,
    mut visit: impl FnMut(&Region<'a>, Access, &'a Stream) -> Result<(), E>,
) -> Result<(), E> {
    let (mut read, mut written) = (None, None);
    for call in calls {
        call.uses(|region, access| {
            let last = if access == Access::Read { &mut read } else { &mut written };
            let this = Some((ptr::from_ref(region.alloc), ptr::from_ref(call.stream)));
            if *last == this {
                return Ok(());
            }
            *last = this;
            visit(region, access, call.stream)
        })?;
    }
    Ok(())
}

/// After a failure between agreement and launch: the other ranks wait for what will not come, and NCCL's state is
/// unknown. So these communicators end, and in a clique those of all ranks.
#[cold]
pub(crate) fn failed(members: &[&Inner], error: Error) -> Error {
    // Who finds the communicator dead already reports why it died.
    if let Some(dead) = members.iter().find_map(|inner| inner.refusal(operation_of(&error))) {
        return if matches!(error, Error::Disagreement { .. }) { error } else { dead };
    }
    let error = lost_device(members, &error).unwrap_or(error);
    let everybody: Vec<_> = members.iter().flat_map(|inner| inner.relatives()).collect();
    let _ = ending::abort(&everybody, &error, &Deadline::after(ending::GRACE));
    error
}

/// Before anything was agreed on, a failure leaves the communicator as it is, unless its device is lost: then this rank will
/// never come.
#[cold]
fn ended_if_lost(inner: &Inner, error: Error) -> Error {
    if matches!(error, Error::DeviceLost { .. }) { failed(&[inner], error) } else { error }
}

/// The loss of a device that is behind an error of NCCL, which says no more than that a call of CUDA failed.
fn lost_device(members: &[&Inner], error: &Error) -> Option<Error> {
    let Error::Nccl { code, .. } = error else { return None };
    if *code != sys::ncclResult_t::ncclUnhandledCudaError.0 as i32 {
        return None;
    }
    let lost =
        |inner: &&Inner| inner.device.memory_info().err().filter(|error| matches!(error, Error::DeviceLost { .. }));
    members.iter().find_map(lost)
}

/// The operation that an error names.
fn operation_of(error: &Error) -> &'static str {
    match error {
        Error::NoDevice { operation, .. }
        | Error::DriverTooOld { operation, .. }
        | Error::OutOfMemory { operation, .. }
        | Error::Cuda { operation, .. }
        | Error::DeviceLost { operation, .. }
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

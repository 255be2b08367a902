//! Making calls: agreement, order, the call itself, and the record of it.

use std::cell::Cell;

use smallvec::SmallVec;

use super::captured;
use super::connect;
use super::connect::{Besides, Promised};
use super::launch;
use super::launch::Member;
use super::parts;
use super::parts::Parts;
use super::{itself, weight};
use crate::cuda::{LAUNCH, Origins, outside_of_lending, restoring};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::nccl::calls::call::Call;
use crate::nccl::flight::files::Trouble;
use crate::nccl::lifecycle::abort::{GRACE, abort};
use crate::nccl::lifecycle::root_cause;
use crate::nccl::rank::gate::LockedAll;
use crate::nccl::rank::guarded::Guarded;
use crate::nccl::rank::inner::Inner;
use crate::nccl::raw::check;
use crate::nccl::validate::failure::Failure;
use crate::nccl::validate::launch::group::before_group;
use crate::nccl::validate::launch::messages::collectives;
use crate::nccl::validate::meeting::Peers;
use crate::nccl::validate::signature::MAX_GROUP;
use crate::nccl::validate::validator::Validator;
use crate::shared_deadline::SharedDeadline;
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
        outside_of_lending(operation)?;
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
    outside_of_lending(operation)
}

/// Makes one call, outside of any group.
#[inline]
pub(crate) fn one(call: &Call<'_>) -> Result<()> {
    outside_of_groups(call.operation)?;
    let inner = call.comm;
    itself::check_alone(call)?;
    captured::check(call)?;
    let _waits = SharedDeadline::begin();
    make_room(call, LAUNCH).map_err(|error| ended_if_lost(call, error))?;
    let (mut guard, handle) = inner.enter(call.operation)?;
    captured::settle(call)?;
    let read = call.origins(&guard.works);
    if let Err(error) = launch::order(call) {
        drop(guard);
        return Err(ended_if_lost(call, error));
    }
    let done = match inner.validation.before_launch(call) {
        Err(Failure::Retryable(error)) => {
            drop(guard);
            Trouble::of([(inner, &error)]).write();
            return Err(error);
        }
        Ok(false) => launch::one(call, read.as_ref(), &mut guard, handle),
        Ok(true) => restoring(|| launch_first(call, read.as_ref(), &mut guard, handle)),
        Err(Failure::Fatal(error)) => Err(error),
    };
    if let Err(error) = done {
        drop(guard);
        return Err(failed(&[inner], call.operation, error));
    }
    Ok(())
}

/// Waits until the stream of `call` has room for it. Not under the lock, which an abort needs.
#[inline]
fn make_room(call: &Call<'_>, cost: u64) -> Result<()> {
    let inner = call.comm;
    call.stream.room_or_part(cost, call.operation, inner.timeout(), || inner.refusal(call.operation))
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

/// Makes calls as one group. Nothing is submitted unless all communicators can take part and all ranks of this process
/// agree.
pub(crate) fn group(calls: &[Call<'_>]) -> Result<()> {
    let Some(first) = calls.first() else { return Ok(()) };
    let operation = first.operation;
    #[cfg(nccl_ge_2_31)]
    super::configured::check_group(calls)?;
    let inners = inners_of(calls);
    for inner in &inners {
        itself::check_group(calls, inner)?;
        check_number(calls, inner)?;
    }
    // Not only of streams on which something is launched: memory is ordered on all of them.
    calls.iter().try_for_each(|call| match call.stream.records() {
        true => call.stream.part_of_capture(call.operation),
        false => call.stream.ready(call.operation),
    })?;
    captured::check_group(calls)?;
    calls.iter().try_for_each(captured::check)?;
    let costs = weight::costs(calls);
    let fits = costs.iter().all(|(_, cost)| *cost <= LAUNCH * weight::MOST);
    let parts = if fits && !parts::is_shared(&inners) { None } else { Some(Parts::of(calls, &inners)) };
    let waits = SharedDeadline::begin();
    for (call, cost) in &costs {
        // What goes in parts makes room for each of them.
        let cost = if fits { *cost } else { LAUNCH };
        make_room(call, cost).map_err(|error| ended_if_lost(call, error))?;
    }
    let launched = {
        let mut entered = LockedAll::new();
        for inner in &inners {
            inner.enter_with(&mut entered, operation)?;
        }
        calls.iter().try_for_each(captured::settle)?;
        let members = inners.iter().zip(entered.values());
        let mut members: SmallVec<[_; 4]> =
            members.map(|(inner, guarded)| Member { inner, guarded, handle: inner.handle().raw() }).collect();
        restoring(|| {
            let (besides, _promised) = match before_group(calls, &inners, operation)? {
                true => {
                    launch::write_down(calls, &members);
                    connect::meet(calls, &inners, operation, parts.is_some(), &mut |parts| {
                        launch::connect(parts, &mut members, operation)
                    })?
                }
                false => (Besides::new(), Promised::default()),
            };
            // Each part may wait for room as long as a call of its own.
            drop(waits);
            match &parts {
                None if first.stream.records() => {
                    connect_ahead(calls, &mut members, &besides)?;
                    launch::group(calls, &costs, &mut members, &Besides::new())
                }
                None => launch::group(calls, &costs, &mut members, &besides),
                Some(parts) => launch_parts(calls, parts, &mut members, &besides),
            }
        })
    };
    // The locks have been given back.
    launched.map_err(|error| failed(&inners, operation, error))
}

/// The communicators of `calls`, in one order for all threads, so that two groups cannot wait for each other's locks.
pub(super) fn inners_of<'a>(calls: &[Call<'a>]) -> SmallVec<[&'a Inner; 4]> {
    let mut inners: SmallVec<[&Inner; 4]> = SmallVec::new();
    for call in calls {
        if !inners.iter().any(|inner| inner.id == call.comm.id) {
            inners.push(call.comm);
        }
    }
    inners.sort_unstable_by_key(|inner| (inner.order, inner.id));
    inners
}

/// The number of collectives stands in what ranks compare.
pub(super) fn check_number(calls: &[Call<'_>], inner: &Inner) -> Result<()> {
    let count = collectives(calls, inner).count();
    if count <= MAX_GROUP {
        return Ok(());
    }
    let expected = format!("at most {MAX_GROUP} collectives of one communicator");
    Err(Error::argument("group", "calls", expected, format!("{count}")))
}

#[cold]
fn launch_parts<'a>(
    calls: &[Call<'a>],
    parts: &Parts,
    members: &mut [Member<'_, 'a>],
    besides: &Besides,
) -> Result<()> {
    connect_ahead(calls, members, besides)?;
    for calls in parts.each(calls) {
        let costs = weight::costs(&calls);
        for (call, cost) in &costs {
            // Under the locks: nobody may come in between the parts. An abort gets them, as this then waits no longer.
            make_room(call, *cost)?;
        }
        launch::group(&calls, &costs, members, &Besides::new())?;
    }
    Ok(())
}

/// Connects, by calls for that alone, what has to be connected besides what `calls` connect.
pub(super) fn connect_ahead<'a>(calls: &[Call<'a>], members: &mut [Member<'_, 'a>], besides: &Besides) -> Result<()> {
    let of = |(id, peers): &(u64, Peers)| {
        let call = calls.iter().find(|call| call.comm.id == *id)?;
        Some((call.comm, call.stream, peers.clone()))
    };
    let mut first: SmallVec<[_; 1]> = besides.iter().filter_map(of).collect();
    // NCCL connects each communicator of a group on a thread of its own: not those that share their resources, which go one after the
    // other, in the order of all ranks.
    let turn = |(inner, ..): &(&'a Inner, _, _)| inner.shares_resources().then(|| &inner.local_ranks.lineage);
    first.sort_by_key(turn);
    for together in first.chunk_by(|one, other| turn(one) == turn(other)) {
        // Before anything waits for room: the other ranks are in this call already.
        let (inner, ..) = together[0];
        let operation = calls.iter().find(|call| call.comm.id == inner.id).map_or("group", |call| call.operation);
        launch::connect(together, members, operation)?;
    }
    Ok(())
}

/// Makes a call that was agreed on and is the first of its kind.
#[cold]
fn launch_first(call: &Call<'_>, read: Option<&Origins>, guarded: &mut Guarded, handle: sys::ncclComm_t) -> Result<()> {
    let (inner, calls) = (call.comm, std::slice::from_ref(call));
    let mut members = [Member { inner, guarded, handle }];
    launch::write_down(calls, &members);
    let (besides, _promised) = connect::meet(calls, &[inner], call.operation, false, &mut |parts| {
        launch::connect(parts, &mut members, call.operation)
    })?;
    let [Member { guarded, .. }] = members;
    if call.stream.records() {
        connect_ahead(calls, &mut [Member { inner, guarded, handle }], &besides)?;
        return launch::one(call, read, guarded, handle);
    }
    if besides.is_empty() {
        return launch::one(call, read, guarded, handle);
    }
    launch::group(calls, &weight::costs(calls), &mut [Member { inner, guarded, handle }], &besides)
}

/// After a failure between agreement and launch: the other ranks wait for what will not come, and NCCL's state is
/// unknown. So these communicators end, and in a clique those of all ranks.
#[cold]
pub(crate) fn failed(members: &[&Inner], operation: &'static str, error: Error) -> Error {
    // Who finds the communicator dead already reports why it died.
    if let Some(dead) = members.iter().find_map(|inner| inner.refusal(operation)) {
        let stayed_inside = || members.iter().find_map(|inner| inner.stayed_inside(operation));
        return match error {
            Error::Disagreement { .. } | Error::Timeout { .. } => error,
            Error::Nccl { .. } => stayed_inside().unwrap_or(dead),
            _ => dead,
        };
    }
    let error = check::lost(&error, members.iter().map(|inner| inner.device)).unwrap_or(error);
    root_cause::begin(&error);
    // At once: this process may end before anybody else tells the others.
    members.iter().for_each(|inner| inner.validation.announce_end(inner.rank, &error));
    let everybody: Vec<_> = members.iter().flat_map(|inner| inner.clique_ranks()).collect();
    let _ = abort(&everybody, &error, &Deadline::after(GRACE));
    error
}

/// Before anything was agreed on, a failure leaves the communicator as it is, unless its device is lost: then this rank will
/// never come.
#[cold]
fn ended_if_lost(call: &Call<'_>, error: Error) -> Error {
    if matches!(error, Error::DeviceLost { .. }) { failed(&[call.comm], call.operation, error) } else { error }
}

#[cfg(all(test, gpucomm_emulator))]
#[path = "submit_tests.rs"]
mod tests;

//! Submits operations: validates them, orders memory, calls NCCL, and records what was issued.
//!
//! [`one`] submits a single call, and [`group`] several as one group of NCCL. In both, the steps are
//! 1. check the call by itself: [`itself`], [`captured`];
//! 2. wait for room in the launch queues, before any lock is taken, and for the device: [`first_launch`];
//! 3. lock the communicators, in the order in which all threads lock them;
//! 4. have the ranks agree: [`Validator::before_launch`] and [`before_group`];
//! 5. connect the ranks, if NCCL would do so within the call: [`connect`];
//! 6. call NCCL, and record the call: [`launch`].
//!
//! [`one`] orders memory before step 4: if that fails, the ranks have agreed on nothing, and nothing
//! ends. [`group`] orders it in step 6, for each part in turn.
//!
//! If a step after the agreement fails, the communicators end: [`failed_call`].

use smallvec::SmallVec;

use super::captured;
use super::connect;
use super::connect::{Besides, Promised};
use super::first_launch;
use super::group_parts;
use super::group_parts::Parts;
use super::in_group::not_beside_group;
use super::members::Member;
use super::{launch, launch_cost, link, self_messages};
use crate::cuda::{LAUNCH, Origins, restoring};
use crate::error::{Error, Result};
use crate::nccl::calls::call::Call;
use crate::nccl::flight::files::Trouble;
use crate::nccl::lifecycle::failed_call;
use crate::nccl::rank::gate::LockedAll;
use crate::nccl::rank::guarded::Guarded;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::recent::NOWHERE;
use crate::nccl::validate::connects::Connects;
use crate::nccl::validate::failure::Failure;
use crate::nccl::validate::launch::group::before_group;
use crate::nccl::validate::launch::messages::collectives;
use crate::nccl::validate::meeting::Peers;
use crate::nccl::validate::signature::MAX_GROUP;
use crate::nccl::validate::validator::Validator;
use crate::shared_deadline::SharedDeadline;
use crate::sys;

/// Submits a call that was prepared, outside of any group.
pub(crate) fn prepared(call: Result<Call<'_>>) -> Result<()> {
    match call {
        Ok(ref call) => one(call),
        Err(error) => Err(error),
    }
}

/// Submits one call, outside of any group.
#[inline]
pub(crate) fn one(call: &Call<'_>) -> Result<()> {
    not_beside_group(call.operation)?;
    let inner = call.comm;
    self_messages::check_alone(call)?;
    captured::check(call)?;
    let _waits = SharedDeadline::begin();
    make_room(call, LAUNCH, &[call.comm]).map_err(|error| ended_if_lost(call, error))?;
    first_launch::wait(call)?;
    let (mut guard, handle) = inner.begin_call(call.operation)?;
    captured::wait_for_launches(call)?;
    let read = call.origins(&guard.works);
    let read = match launch::order(call) {
        Ok(all) => launch::ordered(read, all),
        Err(error) => {
            drop(guard);
            return Err(ended_if_lost(call, error));
        }
    };
    let done = match inner.validation.before_launch(call) {
        Err(Failure::Retryable(error)) => {
            drop(guard);
            Trouble::of([(inner, &error)]).write();
            return Err(error);
        }
        Ok(Connects::Nothing) => launch::one(call, read.as_ref(), &mut guard, handle),
        Ok(Connects::Ranks) => restoring(|| launch_first(call, read.as_ref(), &mut guard, handle)),
        Err(Failure::Fatal(error)) => Err(error),
    };
    if let Err(error) = done {
        drop(guard);
        return Err(failed_call::end(&[inner], call.operation, error));
    }
    Ok(())
}

/// Waits until the stream of `call` has room for it. Called before the communicator is locked: an abort takes the same lock.
#[inline]
fn make_room(call: &Call<'_>, cost: u64, members: &[&Inner]) -> Result<()> {
    let refusal = || members.iter().find_map(|inner| inner.refusal(call.operation));
    call.stream.room_or_part(cost, call.operation, || call.comm.timeout(), refusal)
}

/// Submits the calls of one operation: a single one as it is, several as a group.
#[inline]
pub(crate) fn all(calls: &[Call<'_>]) -> Result<()> {
    match calls {
        [] => Ok(()),
        [call] => one(call),
        [first, ..] => {
            not_beside_group(first.operation)?;
            group(calls)
        }
    }
}

/// Submits calls as one group. Submits nothing unless all communicators can take part and all ranks of this process agree.
pub(crate) fn group(calls: &[Call<'_>]) -> Result<()> {
    let Some(first) = calls.first() else { return Ok(()) };
    let operation = first.operation;
    #[cfg(nccl_ge_2_31)]
    super::group_config::check_group(calls)?;
    let inners = inners_of(calls);
    for inner in &inners {
        self_messages::check_group(calls, inner)?;
        check_number(calls, inner)?;
    }
    // Also streams on which nothing is launched: memory is ordered on them.
    calls.iter().try_for_each(|call| match call.stream.records() {
        true => call.stream.part_of_capture(call.operation),
        false => call.stream.ready(call.operation),
    })?;
    captured::check_group(calls)?;
    calls.iter().try_for_each(captured::check)?;
    let costs = launch_cost::costs(calls);
    let fits = costs.iter().all(|(_, cost)| *cost <= LAUNCH * launch_cost::MOST);
    let parts = if fits && !group_parts::is_shared(&inners) { None } else { Some(Parts::of(calls, &inners)) };
    let waits = SharedDeadline::begin();
    for (call, cost) in &costs {
        // A group that is launched in parts makes room for each part.
        let cost = if fits { *cost } else { LAUNCH };
        make_room(call, cost, &inners).map_err(|error| ended_if_lost(call, error))?;
    }
    calls.iter().try_for_each(first_launch::wait)?;
    let launched = {
        let mut locked = LockedAll::new();
        for inner in &inners {
            inner.begin_call_with(&mut locked, operation)?;
        }
        calls.iter().try_for_each(captured::wait_for_launches)?;
        let mut members: SmallVec<[_; 4]> = SmallVec::new();
        for (inner, guarded) in inners.iter().zip(locked.values()) {
            members.push(Member { inner, guarded, handle: inner.handle().raw() });
        }
        restoring(|| {
            let (besides, _promised) = match before_group(calls, &inners, operation)? {
                Connects::Ranks => {
                    launch::write_down_early(calls, &members);
                    connect::meet(calls, &inners, operation, parts.is_some(), &mut |parts| {
                        link::connect(parts, &mut members, operation)
                    })?
                }
                Connects::Nothing => (Besides::new(), Promised::default()),
            };
            // Each part may wait for room as long as a single call may.
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
    // After the locks are released: an abort takes them.
    launched.map_err(|error| {
        let has_counted = |inner: &Inner| {
            let mut own = calls.iter().filter(|call| std::ptr::eq(call.comm, inner));
            inner.validation.over_exchange().is_some() || own.any(|call| call.agreed.get() != NOWHERE)
        };
        failed_call::end_counted(&inners, has_counted, operation, error)
    })
}

/// The communicators of `calls`, in the order in which every thread locks them, so that two groups never wait for each other.
pub(super) fn inners_of<'a>(calls: &[Call<'a>]) -> SmallVec<[&'a Inner; 4]> {
    let mut inners: SmallVec<[&Inner; 4]> = SmallVec::new();
    for call in calls {
        if !inners.iter().any(|inner| inner.id == call.comm.id) {
            inners.push(call.comm);
        }
    }
    if inners.len() > 1 {
        inners.sort_unstable_by_key(|inner| (inner.order, inner.id));
    }
    inners
}

/// Returns an error if a communicator has more collectives in `calls` than ranks can compare.
pub(super) fn check_number(calls: &[Call<'_>], inner: &Inner) -> Result<()> {
    if calls.len() <= MAX_GROUP {
        return Ok(());
    }
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
        let costs = launch_cost::costs(&calls);
        for (call, cost) in &costs {
            // With the locks held, so that no other call comes between the parts. An abort ends this wait, and then gets them.
            make_room(call, *cost, &[call.comm])?;
        }
        launch::group(&calls, &costs, members, &Besides::new())?;
    }
    Ok(())
}

/// Connects the ranks of `besides`, by calls that do nothing else.
pub(super) fn connect_ahead<'a>(calls: &[Call<'a>], members: &mut [Member<'_, 'a>], besides: &Besides) -> Result<()> {
    let of = |(id, peers): &(u64, Peers)| {
        let call = calls.iter().find(|call| call.comm.id == *id)?;
        Some((call.comm, call.stream, peers.clone()))
    };
    let mut first: SmallVec<[_; 1]> = besides.iter().filter_map(of).collect();
    // NCCL connects each communicator of a group on its own thread. Communicators that share resources must not connect at the
    // same time, so they go one after the other, in an order that all ranks have.
    let turn = |(inner, ..): &(&'a Inner, _, _)| inner.shares_resources().then(|| &inner.local_ranks.lineage);
    first.sort_by_key(turn);
    for together in first.chunk_by(|one, other| turn(one) == turn(other)) {
        // Waits for no room before: the other ranks are in this call already.
        let (inner, ..) = together[0];
        let operation = calls.iter().find(|call| call.comm.id == inner.id).map_or("group", |call| call.operation);
        link::connect(together, members, operation)?;
    }
    Ok(())
}

/// Launches a call on which the ranks have agreed, and for which NCCL first connects ranks.
#[cold]
fn launch_first(call: &Call<'_>, read: Option<&Origins>, guarded: &mut Guarded, handle: sys::ncclComm_t) -> Result<()> {
    let (inner, calls) = (call.comm, std::slice::from_ref(call));
    let mut members = [Member { inner, guarded, handle }];
    launch::write_down_early(calls, &members);
    let (besides, _promised) = connect::meet(calls, &[inner], call.operation, false, &mut |parts| {
        link::connect(parts, &mut members, call.operation)
    })?;
    let [Member { guarded, .. }] = members;
    if call.stream.records() {
        connect_ahead(calls, &mut [Member { inner, guarded, handle }], &besides)?;
        return launch::one(call, read, guarded, handle);
    }
    if besides.is_empty() {
        return launch::one(call, read, guarded, handle);
    }
    launch::group(calls, &launch_cost::costs(calls), &mut [Member { inner, guarded, handle }], &besides)
}

/// Handles a failure before the ranks agreed: the communicator stays as it is, unless the device is lost. Then this rank cannot
/// take part any more, and the communicator ends.
#[cold]
fn ended_if_lost(call: &Call<'_>, error: Error) -> Error {
    if matches!(error, Error::DeviceLost { .. }) {
        failed_call::end(&[call.comm], call.operation, error)
    } else {
        error
    }
}

#[cfg(all(test, gpucomm_emulator))]
#[path = "submit_tests.rs"]
mod tests;

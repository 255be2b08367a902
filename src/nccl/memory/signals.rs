//! The first one-sided operation, to which all ranks come: NCCL makes a window for their signals in it, and meets there.
//!
//! Each rank gives itself a signal, and waits for it.

use std::ffi::c_int;
use std::sync::Arc;

use super::retire;
use super::retire::Member;
use crate::cuda::{LAUNCH, Stream, restoring};
use crate::error::{Error, Result};
use crate::nccl::calls::site::Site;
use crate::nccl::enqueue::{graph_usage, in_group};
use crate::nccl::lifecycle::failed_call;
use crate::nccl::rank::inner::Inner;
use crate::nccl::raw::check;
use crate::nccl::raw::group::grouped;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::validate::signature::Signature;
use crate::nccl::wait::begin_call::{begin_calls, begin_visits};
use crate::shared_deadline::SharedDeadline;
use crate::sys;
use crate::version::{self, Version};

/// The first version with one-sided operations.
const FIRST: Version = Version::new(2, 29, 2);

/// Has all members, which one thread drives, come to their first one-sided operation, on these streams.
pub(crate) fn prepare(operation: &'static str, members: &[&Arc<Inner>], streams: &[&Stream]) -> Result<()> {
    in_group::outside_of_groups(operation)?;
    // Before the other ranks wait for this one.
    outside_of_host_functions(operation)?;
    version::needs(operation, FIRST)?;
    for (inner, stream) in members.iter().zip(streams) {
        Site::new(operation, inner, stream)?;
    }
    if members.iter().all(|inner| inner.one_sided.is_ready()) {
        return Ok(());
    }
    for inner in members {
        // What holds of one rank holds of all.
        if inner.ask_properties(operation)?.is_some_and(|properties| properties.hostRmaSupport == 0) {
            let needs = "memory of all ranks that NCCL can map, and numRmaCtx above 0, for one-sided operations".into();
            return Err(Error::Unsupported { operation, needs });
        }
    }
    let _call = SharedDeadline::begin();
    for (inner, stream) in members.iter().zip(streams) {
        stream.make_room(4 * LAUNCH, operation, || inner.timeout(), || inner.refusal(operation))?;
    }
    let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
    // Before the other ranks wait for this one; and under the locks.
    wait_for_launches(operation, &refs)?;
    let mut approaching = retire::approach(members, operation)?;
    restoring(|| together(operation, &mut approaching, streams))
        .map_err(|error| failed_call::end(&refs, operation, error))
}

/// Signals are no part of any graph.
fn wait_for_launches(operation: &'static str, members: &[&Inner]) -> Result<()> {
    let alone = members.iter().filter(|inner| inner.graphs.are_alone());
    alone.into_iter().try_for_each(|inner| graph_usage::wait_for_launches(inner, operation, None))
}

/// The error is one that the other ranks wait behind.
fn together(operation: &'static str, approaching: &mut [Member<'_>], streams: &[&Stream]) -> Result<()> {
    let members: Vec<&Inner> = approaching.iter().map(|member| &**member.inner).collect();
    let mut locked = begin_calls(&members, operation)?;
    wait_for_launches(operation, &members)?;
    let (_entries, _promised) = retire::meet(approaching, &mut locked, operation, |_| Signature::one_sided())?;
    begin_visits(members.iter().copied(), operation)?;
    let calls =
        || members.iter().zip(&locked).zip(streams).map(|((inner, (_, handle)), stream)| (inner, handle, stream));
    let mut result = grouped("ncclSignal", || {
        calls().try_for_each(|(inner, handle, stream)| {
            stream.make_current();
            // SAFETY: a live communicator during a visit, and a stream of its device.
            check::check("ncclSignal", unsafe { sys::ncclSignal(inner.rank as c_int, 0, 0, 0, *handle, stream.raw()) })
        })
    });
    if result.is_ok() {
        result = grouped("ncclWaitSignal", || {
            calls().try_for_each(|(inner, handle, stream)| {
                let mut own = sys::ncclWaitSignalDesc_t { opCnt: 1, peer: inner.rank as c_int, sigIdx: 0, ctx: 0 };
                // SAFETY: as above; NCCL has read the descriptor when it returns.
                check::check("ncclWaitSignal", unsafe { sys::ncclWaitSignal(1, &raw mut own, *handle, stream.raw()) })
            })
        });
    }
    for ((inner, (guard, _)), stream) in members.iter().zip(&mut locked).zip(streams) {
        inner.end_visit();
        stream.count(4 * LAUNCH);
        inner.one_sided.set_ready();
        inner.one_sided.note_given(stream);
        guard.streams.remember(stream);
        guard.works.enqueued(inner.fate(), stream, |base| inner.new_work(base));
    }
    result
}

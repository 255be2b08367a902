//! Makes calls that were agreed on.

use std::convert::Infallible;
use std::{ptr, slice};

use smallvec::SmallVec;

use super::captured;
use super::connect::Besides;
use super::launch_cost::Costs;
use super::link::link_besides;
use super::members::{Member, have_one_lineage, in_one_order, place};
use super::read_origins::Reads;
use crate::clock;
use crate::cuda::{Access, Allocation, Form, LAUNCH, Origins, Span, Stream, Turns, Waits};
use crate::error::Result;
use crate::nccl::calls::call::Call;
use crate::nccl::rank::guarded::Guarded;
use crate::nccl::rank::recent::Record;
use crate::nccl::rank::traced::Traced;
use crate::nccl::raw::check;
use crate::nccl::wait::begin_call;
use crate::sys;

/// Makes one call, whose memory was ordered. `read` are the operations that have made the data it reads.
#[inline]
pub(crate) fn one(call: &Call<'_>, read: Option<&Origins>, guard: &mut Guarded, handle: sys::ncclComm_t) -> Result<()> {
    if call.count == 0 {
        Ok(())
    } else if call.stream.records() {
        capture(call, handle)
    } else if call.is_in_graphs() {
        between_graphs(call, guard, handle)
    } else {
        enqueue(call, read, guard, handle)
    }
}

/// Makes a call that becomes part of a graph.
#[cold]
fn capture(call: &Call<'_>, handle: sys::ncclComm_t) -> Result<()> {
    captured::put_in_order(slice::from_ref(call))?;
    let result = enter(call, handle, clock::tick())?;
    keep(call, slice::from_ref(call));
    check::check(call.function(), result)
}

/// Makes a call while no graph is launched that uses the same memory.
#[cold]
fn between_graphs(call: &Call<'_>, guard: &mut Guarded, handle: sys::ncclComm_t) -> Result<()> {
    let _turns = turns(slice::from_ref(call), call.operation)?;
    // Since the call was ordered, such a graph may have been launched.
    let read = call.origins(&guard.works);
    let read = ordered(read, order(call)?);
    enqueue(call, read.as_ref(), guard, handle)
}

/// Makes a call, whose turn it is, and records it.
#[inline]
fn enqueue(call: &Call<'_>, read: Option<&Origins>, guard: &mut Guarded, handle: sys::ncclComm_t) -> Result<()> {
    let now = clock::tick();
    let sequence = call.comm.issued.next(call.kind.message(), call.comm.size);
    call.comm.recent.keep(record(call, guard.works.next(), sequence, now, false));
    let result = enter(call, handle, now)?;
    guard.streams.remember(call.stream);
    let operation = guard.works.enqueued(call.comm.fate(), call.stream, |base| call.comm.new_work(base));
    count(call, operation.1);
    call.carry(operation, read, slice::from_ref(call));
    check::check(call.function(), result)?;
    call.comm.graphs.count_group();
    Ok(())
}

/// Makes the C call, and notes what it uses, also where it fails.
#[inline]
fn enter(call: &Call<'_>, handle: sys::ncclComm_t, now: u64) -> Result<sys::ncclResult_t> {
    // SAFETY: the handle is live during a visit; the regions were just ordered, and the ranks agree: in a clique
    // they have compared, and who made a communicator across processes has promised it. Its other work comes before this: NCCL sees to that,
    // or no graph has any that is under way, as was seen under the lock.
    let result = call.comm.inside_since(call.operation, now, || unsafe { call.make(handle) })?;
    call.comm.validation.launched(call.comm.rank);
    call.stream.count(LAUNCH);
    note(call);
    trace(call);
    Ok(result)
}

/// NCCL was given a call as operation `number`.
#[inline]
fn count(call: &Call<'_>, number: u64) {
    call.comm.issued.count(call.kind.message(), call.comm.size);
    call.comm.issued.give(number);
}

/// NCCL was given a call.
#[inline]
fn trace(call: &Call<'_>) {
    call.comm.trace(|| Traced {
        operation: call.operation,
        head: call.head,
        count: call.elements as u64,
        stream: call.stream.serial(),
        captured: call.stream.records(),
    });
}

/// What is kept of a call that NCCL is given next, as operation `number`.
#[inline]
fn record(call: &Call<'_>, number: u64, sequence: u64, when: u64, joined: bool) -> Record {
    Record {
        number,
        head: call.head,
        count: call.elements as u64,
        agreed: call.agreed.get(),
        sequence,
        operation: call.operation,
        when,
        stream: call.stream.serial(),
        visit: call.comm.next_visit(),
        joined,
    }
}

/// Writes down calls that were agreed on, before the ranks are connected for them. They are written
/// down once more when they are made.
#[cold]
pub(crate) fn write_down_early(calls: &[Call<'_>], members: &[Member<'_, '_>]) {
    write_down(calls, members);
    calls.iter().for_each(|call| call.comm.issued.forget(call.kind.message(), call.comm.size));
}

/// Writes down calls that were agreed on, before anything of them may wait.
fn write_down(calls: &[Call<'_>], members: &[Member<'_, '_>]) {
    let now = clock::tick();
    for Member { inner, guarded, .. } in members {
        let own = calls.iter().filter(|call| call.comm.id == inner.id && call.count > 0 && !call.stream.records());
        let first = guarded.works.next();
        for (number, call) in (first..).zip(own) {
            let sequence = inner.issued.next_of_group(call.kind.message(), inner.size);
            inner.recent.keep(record(call, number, sequence, now, number != first));
        }
    }
}

/// Makes calls as one group of NCCL, and what is to be connected besides.
pub(crate) fn group(
    all: &[Call<'_>],
    costs: &Costs<'_, '_>,
    members: &mut [Member<'_, '_>],
    besides: &Besides,
) -> Result<()> {
    let calls = || all.iter().filter(|call| call.count > 0);
    let Some(first) = calls().next() else { return Ok(()) };
    let _turns = turns(all, first.operation)?;
    let mut reads = Reads::of(all, |id| &members[place(id, members)].guarded.works);
    let mut after_all = true;
    each_use(calls(), |memory, span, access, stream| memory.order(span, access, stream).map(|one| after_all &= one))?;
    if !after_all {
        reads.follow_nothing();
    }
    if first.stream.records() {
        captured::put_in_order(all)?;
    }
    write_down(all, members);
    begin_call::begin_visits(members.iter().map(|member| member.inner), first.operation)?;
    // SAFETY: ended below, whatever happens in between: nothing there panics or returns.
    let mut result = check::check("ncclGroupStart", unsafe { sys::ncclGroupStart() });
    if result.is_ok() {
        let mut see = |function, code| {
            if let Err(error) = check::check(function, code)
                && result.is_ok()
            {
                result = Err(error);
            }
        };
        if !besides.is_empty() {
            link_besides(all, members, besides, &mut see);
        }
        let mut make = |call: &Call<'_>| {
            let handle = members[place(call.comm.id, members)].handle;
            call.stream.make_current();
            // SAFETY: as in `enter`; the calls are made when the group ends, before the locks are given back.
            see(call.function(), unsafe { call.make(handle) });
        };
        // Some collectives are messages to NCCL: they come first, as ranks have compared them.
        let of = |messages: bool| calls().filter(move |call| call.kind.message().is_some() == messages);
        if have_one_lineage(members) {
            for messages in [false, true] {
                for call in of(messages) {
                    make(call);
                }
            }
        } else {
            let mut ordered: SmallVec<[_; 8]> = of(false).chain(of(true)).collect();
            in_one_order(&mut ordered, members, |call| call.comm.id);
            ordered.into_iter().for_each(make);
        }
        // SAFETY: this thread has opened the group above. After an error NCCL drops what was queued.
        let ended = check::check("ncclGroupEnd", unsafe { sys::ncclGroupEnd() });
        result = result.and(ended);
    }
    members.iter().for_each(|member| member.inner.end_visit());
    costs.iter().for_each(|(call, cost)| call.stream.count(*cost));
    let Ok(()) = each_use(calls(), |memory, span, access, stream| {
        memory.note(span, access, stream);
        Ok::<_, Infallible>(())
    });
    for (at, call) in all.iter().enumerate().filter(|(_, call)| call.count > 0) {
        trace(call);
        if call.stream.records() {
            keep(call, all);
            continue;
        }
        let guarded = &mut *members[place(call.comm.id, members)].guarded;
        // An abort has to know them.
        guarded.streams.remember(call.stream);
        let operation = guarded.works.enqueued(call.comm.fate(), call.stream, |base| call.comm.new_work(base));
        count(call, operation.1);
        call.carry(operation, reads.next(at), all);
    }
    if result.is_ok() && !first.stream.records() {
        let took_part = |member: &&Member<'_, '_>| calls().any(|call| call.comm.id == member.inner.id);
        members.iter().filter(took_part).for_each(|member| member.inner.graphs.count_group());
    }
    result
}

/// The turns of calls that are launched together.
#[inline]
fn turns<'a>(calls: &[Call<'a>], operation: &'static str) -> Result<Turns<'a>> {
    if !calls.iter().any(Call::is_in_graphs) {
        return Ok(Turns::default());
    }
    let first = &calls[0];
    let memory = calls.iter().flat_map(|call| [&call.send, &call.scalar, &call.recv]).flatten();
    let (comm, memory) = (first.comm, memory.map(|region| region.alloc.tracker()));
    // Under the lock: an abort gets it, as this then waits no longer.
    first.stream.turns(Waits { operation, timeout: || comm.timeout(), refusal: || comm.refusal(operation) }, memory)
}

/// Makes the stream wait for what conflicts with this call on other streams. Returns whether it comes after what conflicts with
/// all bytes of the buffers.
#[inline]
pub(crate) fn order(call: &Call<'_>) -> Result<bool> {
    let mut all = true;
    call.uses(|region, access| region.order(access, call.stream).map(|one| all &= one))?;
    Ok(all)
}

/// What a call reads comes from these, which were gathered before it was ordered; `all` is what [`order`] has returned.
#[inline]
pub(crate) fn ordered(mut read: Option<Origins>, all: bool) -> Option<Origins> {
    if !all {
        read.iter_mut().for_each(Origins::follow_nothing);
    }
    read
}

/// This call became part of a graph, with those of its group.
#[cold]
fn keep(call: &Call<'_>, together: &[Call<'_>]) {
    if let Some(recv) = call.recv.as_ref().filter(|_| call.form(together) == Form::Whole) {
        recv.alloc.overwrite(call.stream);
    }
    captured::add(call);
}

/// Records what this call uses.
#[inline]
fn note(call: &Call<'_>) {
    let Ok(()) = call.uses(|region, access| {
        region.note(access, call.stream);
        Ok::<_, Infallible>(())
    });
}

/// What was used last of a buffer, and where.
type Last<'a> = Option<(&'a Allocation, Span, &'a Stream)>;

/// Visits what calls use that are ordered, launched and noted together: where several after one another read, or write, parts
/// of one buffer, the smallest range that has them counts once.
#[inline]
fn each_use<'c, 'a: 'c, E>(
    calls: impl Iterator<Item = &'c Call<'a>>,
    mut visit: impl FnMut(&'a Allocation, Span, Access, &'a Stream) -> Result<(), E>,
) -> Result<(), E> {
    let (mut read, mut written): (Last<'a>, Last<'a>) = (None, None);
    for call in calls {
        call.uses(|region, access| {
            let last = if access == Access::Read { &mut read } else { &mut written };
            let (alloc, stream) = (region.alloc, call.stream);
            if alloc.tracker().is_solo(stream) {
                return Ok(());
            }
            match last {
                Some((known, span, of)) if ptr::eq(*known, alloc) && ptr::eq(*of, stream) => {
                    *span = region.span().hull(*span);
                    Ok(())
                }
                _ => last
                    .replace((alloc, region.span(), stream))
                    .map_or(Ok(()), |(known, span, of)| visit(known, span, access, of)),
            }
        })?;
    }
    for (last, access) in [(read, Access::Read), (written, Access::Write)] {
        last.map_or(Ok(()), |(known, span, of)| visit(known, span, access, of))?;
    }
    Ok(())
}

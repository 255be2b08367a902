//! Makes the calls by which NCCL connects ranks: messages without elements.

use std::ffi::c_int;
use std::ptr;

use smallvec::SmallVec;

use super::connect::Besides;
use super::members::{Member, in_one_order, place};
use crate::cuda::{LAUNCH, Stream};
use crate::error::Result;
use crate::nccl::calls::call::Call;
use crate::nccl::rank::inner::Inner;
use crate::nccl::raw::check;
use crate::nccl::raw::group::grouped;
use crate::nccl::validate::meeting::Peers;
use crate::nccl::validate::pair::End;
use crate::nccl::wait::begin_call;
use crate::sys;

/// Connects ranks within a group, in front of all other messages, as the other ends do.
#[cold]
pub(super) fn link_besides(
    calls: &[Call<'_>],
    members: &[Member<'_, '_>],
    besides: &Besides,
    see: &mut impl FnMut(&'static str, sys::ncclResult_t),
) {
    let mut besides: SmallVec<[_; 1]> = besides.iter().collect();
    in_one_order(&mut besides, members, |(id, _)| *id);
    for (id, peers) in besides {
        let stream = calls.iter().find(|call| call.comm.id == *id && call.count > 0).map(|call| call.stream);
        for ((peer, end), stream) in peers.iter().zip(stream.into_iter().cycle()) {
            // SAFETY: the handle is live during a visit; the peer makes the other end.
            let (function, code) = unsafe { link(peer, end, stream, members[place(*id, members)].handle) };
            see(function, code);
        }
    }
}

/// Connects ranks by a call for that alone, which the other ends make as well.
#[cold]
pub(crate) fn connect(
    parts: &[(&Inner, &Stream, Peers)],
    members: &mut [Member<'_, '_>],
    operation: &'static str,
) -> Result<()> {
    let mut beside: SmallVec<[Stream; 1]> = SmallVec::new();
    for (_, stream, _) in parts.iter().filter(|(_, stream, _)| stream.records()) {
        // It is no part of the graph.
        beside.push(Stream::new(stream.device())?);
    }
    let mut beside = beside.iter();
    let parts: SmallVec<[(&Inner, &Stream, &Peers); 4]> = parts
        .iter()
        .map(|(inner, stream, peers)| (*inner, beside.next().filter(|_| stream.records()).unwrap_or(stream), peers))
        .collect();
    for (inner, stream, _) in &parts {
        // Waits under the lock: an abort ends this wait, and takes the lock then. If the communicator has ended, the call is made
        // nevertheless, because the other ranks wait in it, and a stream has some room left.
        let room = stream.make_room(LAUNCH, operation, || inner.timeout(), || inner.refusal(operation));
        room.or_else(|error| inner.refusal(operation).map(drop).ok_or(error))?;
    }
    begin_call::begin_visits(parts.iter().map(|(inner, ..)| *inner), operation)?;
    let result = grouped("ncclGroupEnd", || {
        parts.iter().try_for_each(|(inner, stream, peers)| {
            let handle = members[place(inner.id, members)].handle;
            peers.iter().try_for_each(|(peer, end)| {
                // SAFETY: the handle is live during a visit, and the peer makes the other end.
                let (function, code) = unsafe { link(peer, end, stream, handle) };
                check::check(function, code)
            })
        })
    });
    for (inner, stream, _) in &parts {
        inner.end_visit();
        stream.count(LAUNCH);
        members[place(inner.id, members)].guarded.streams.remember(stream);
    }
    result
}

/// Makes one end of a message without elements, for which NCCL connects two ranks. Returns the C function and its result.
///
/// # Safety
/// `handle` is a live communicator, during a visit; the peer makes the other end.
pub(super) unsafe fn link(
    peer: usize,
    end: End,
    stream: &Stream,
    handle: sys::ncclComm_t,
) -> (&'static str, sys::ncclResult_t) {
    let nothing = ptr::NonNull::<u64>::dangling().as_ptr().cast();
    let (bytes, peer) = (sys::ncclDataType_t::ncclInt8, peer as c_int);
    stream.make_current();
    // SAFETY: as the caller promises; the stream is live, and no elements are read or written.
    unsafe {
        match end {
            End::Sender => ("ncclSend", sys::ncclSend(nothing, 0, bytes, peer, handle, stream.raw())),
            End::Receiver => ("ncclRecv", sys::ncclRecv(nothing, 0, bytes, peer, handle, stream.raw())),
        }
    }
}

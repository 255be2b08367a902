//! The C functions of NCCL. Each checks its pointers, lets no panic through, and hands over to the module of its noun.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]

mod configured;
mod grow;
mod memory;
mod one_sided;
mod parameters;

pub use configured::*;
pub use grow::*;
pub use memory::*;
pub use one_sided::*;
pub use parameters::*;

use std::ffi::{c_char, c_int, c_void};

use super::basics::config::{self, Config};
use super::basics::encryption;
use super::basics::error::{self, Failure, Outcome, entry};
use super::basics::kind::Kind;
use super::basics::safety::{Function, functions};
use super::basics::unique_id;
use super::calls::{divide, group, init, issue, lifecycle};
use super::requests::request::Request;
use super::state::inside::Manner;
use super::state::shared::Nccl;
use super::state::{redop, registry};
use crate::meet::register;
use crate::sys::*;

const SUCCESS: Outcome<ncclResult_t> = Ok(ncclResult_t::ncclSuccess);

/// Writes a result through a pointer that C gave.
///
/// # Safety
/// `place` is null or valid for a write.
unsafe fn put<T>(place: *mut T, value: T) -> Outcome<ncclResult_t> {
    if place.is_null() {
        return Err(Failure::argument("the place for the result is null"));
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { place.write(value) };
    SUCCESS
}

pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller's pointer, as C declares it.
    entry(functions::ncclGetVersion, || unsafe { put(version, config::version()) })
}

pub unsafe extern "C" fn ncclGetUniqueId(uniqueId: *mut ncclUniqueId) -> ncclResult_t {
    entry(functions::ncclGetUniqueId, || {
        if uniqueId.is_null() {
            return Err(Failure::argument("the place for the id is null"));
        }
        encryption::check()?;
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { put(uniqueId, unique_id::of(register::create::<Nccl>()?)) }
    })
}

pub unsafe extern "C" fn ncclGetErrorString(result: ncclResult_t) -> *const c_char {
    error::describe(result).as_ptr()
}

pub unsafe extern "C" fn ncclGetLastError(comm: ncclComm_t) -> *const c_char {
    let own = std::panic::catch_unwind(|| registry::said(comm));
    error::last(own.unwrap_or_default())
}

pub unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut ncclComm_t,
    nranks: c_int,
    commId: ncclUniqueId,
    rank: c_int,
    config: *mut ncclConfig_t,
) -> ncclResult_t {
    entry(functions::ncclCommInitRankConfig, || {
        let ids = std::slice::from_ref(&commId);
        // SAFETY: the caller's pointers, as C declares them: null, or a config made by its initialiser.
        unsafe { init::init_rank(functions::ncclCommInitRankConfig, comm, nranks, ids, rank, Config::read(config)?) }
    })
}

pub unsafe extern "C" fn ncclCommInitRankScalable(
    newcomm: *mut ncclComm_t,
    nranks: c_int,
    myrank: c_int,
    nId: c_int,
    commIds: *mut ncclUniqueId,
    config: *mut ncclConfig_t,
) -> ncclResult_t {
    entry(functions::ncclCommInitRankScalable, || {
        if nId <= 0 || nId > nranks || commIds.is_null() {
            return Err(Failure::argument(format!(
                "there are {nId} ids for {nranks} ranks, expected one at least, at most one a rank"
            )));
        }
        // SAFETY: not null, and as C declares it, so many ids.
        let ids = unsafe { std::slice::from_raw_parts(commIds, nId as usize) };
        // SAFETY: the caller's pointers, as C declares them: null, or a config made by its initialiser.
        unsafe {
            init::init_rank(functions::ncclCommInitRankScalable, newcomm, nranks, ids, myrank, Config::read(config)?)
        }
    })
}

pub unsafe extern "C" fn ncclCommSplit(
    comm: ncclComm_t,
    color: c_int,
    key: c_int,
    newcomm: *mut ncclComm_t,
    config: *mut ncclConfig_t,
) -> ncclResult_t {
    entry(functions::ncclCommSplit, || {
        let (parent, _inside) = registry::enter(comm, Manner::Alone)?;
        // SAFETY: the caller's pointers, as C declares them: null, or a config made by its initialiser.
        let made = unsafe { divide::split(&parent, color, key, newcomm, Config::read(config)?) }?;
        // As NCCL: the parent's state tells how a non-blocking split goes, the call itself has succeeded.
        Ok(if made == ncclResult_t::ncclInProgress { ncclResult_t::ncclSuccess } else { made })
    })
}

pub unsafe extern "C" fn ncclCommShrink(
    comm: ncclComm_t,
    excludeRanksList: *mut c_int,
    excludeRanksCount: c_int,
    newcomm: *mut ncclComm_t,
    config: *mut ncclConfig_t,
    shrinkFlags: c_int,
) -> ncclResult_t {
    entry(functions::ncclCommShrink, || {
        let (parent, _inside) = registry::enter(comm, Manner::Alone)?;
        if excludeRanksList.is_null() {
            return Err(Failure::argument("the list of ranks to leave out is null"));
        }
        let count = usize::try_from(excludeRanksCount).unwrap_or(0);
        // SAFETY: the caller's list, as C declares it: not null, and so long.
        let excluded = unsafe { std::slice::from_raw_parts_mut(excludeRanksList, count) };
        // NCCL sorts the list of the caller.
        excluded.sort_unstable();
        // SAFETY: the caller's pointers, as C declares them: null, or a config made by its initialiser.
        let made = unsafe { divide::shrink(&parent, excluded, newcomm, Config::read(config)?, shrinkFlags) }?;
        Ok(if made == ncclResult_t::ncclInProgress { ncclResult_t::ncclSuccess } else { made })
    })
}

pub unsafe extern "C" fn ncclCommFinalize(comm: ncclComm_t) -> ncclResult_t {
    entry(functions::ncclCommFinalize, || {
        if comm.is_null() {
            return SUCCESS;
        }
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        lifecycle::finalize(&comm)
    })
}

pub unsafe extern "C" fn ncclCommDestroy(comm: ncclComm_t) -> ncclResult_t {
    entry(functions::ncclCommDestroy, || if comm.is_null() { SUCCESS } else { lifecycle::destroy(comm) })
}

pub unsafe extern "C" fn ncclCommAbort(comm: ncclComm_t) -> ncclResult_t {
    entry(functions::ncclCommAbort, || if comm.is_null() { SUCCESS } else { lifecycle::abort(comm) })
}

pub unsafe extern "C" fn ncclCommRevoke(comm: ncclComm_t, revokeFlags: c_int) -> ncclResult_t {
    entry(functions::ncclCommRevoke, || match revokeFlags {
        _ if comm.is_null() => SUCCESS,
        0 => {
            let (comm, _inside) = registry::enter(comm, Manner::Guest)?;
            lifecycle::revoke(&comm)
        }
        flags => Err(Failure::argument(format!("revoke flags {flags}: expected 0"))),
    })
}

pub unsafe extern "C" fn ncclCommGetAsyncError(comm: ncclComm_t, asyncError: *mut ncclResult_t) -> ncclResult_t {
    entry(functions::ncclCommGetAsyncError, || {
        let (comm, _inside) = registry::enter(comm, Manner::Guest)?;
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { put(asyncError, comm.state()) }
    })
}

/// Tells something about a communicator whose start is over.
///
/// # Safety
/// `place` is null or valid for a write.
unsafe fn ask(
    function: Function,
    comm: ncclComm_t,
    place: *mut c_int,
    answer: fn(&super::state::comm::Comm) -> c_int,
) -> ncclResult_t {
    entry(function, || {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        comm.ensure_settled()?;
        // SAFETY: the caller vouches for the place.
        unsafe { put(place, answer(&comm)) }
    })
}

pub unsafe extern "C" fn ncclCommCount(comm: ncclComm_t, count: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller's pointer, as C declares it.
    unsafe { ask(functions::ncclCommCount, comm, count, |comm| comm.size as c_int) }
}

pub unsafe extern "C" fn ncclCommCuDevice(comm: ncclComm_t, device: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller's pointer, as C declares it.
    unsafe { ask(functions::ncclCommCuDevice, comm, device, |comm| comm.device) }
}

pub unsafe extern "C" fn ncclCommUserRank(comm: ncclComm_t, rank: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller's pointer, as C declares it.
    unsafe { ask(functions::ncclCommUserRank, comm, rank, |comm| comm.rank as c_int) }
}

pub unsafe extern "C" fn ncclRedOpCreatePreMulSum(
    op: *mut ncclRedOp_t,
    scalar: *mut c_void,
    datatype: ncclDataType_t,
    residence: ncclScalarResidence_t,
    comm: ncclComm_t,
) -> ncclResult_t {
    entry(functions::ncclRedOpCreatePreMulSum, || {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        comm.ensure_settled()?;
        if op.is_null() {
            return Err(Failure::unnoticed("the place for the operator is null"));
        }
        // SAFETY: the caller's pointers, as C declares them.
        unsafe { put(op, redop::create(&comm.redops, scalar.cast::<u8>().cast_const(), datatype, residence)?) }
    })
}

pub unsafe extern "C" fn ncclRedOpDestroy(op: ncclRedOp_t, comm: ncclComm_t) -> ncclResult_t {
    entry(functions::ncclRedOpDestroy, || {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        redop::destroy(&comm.redops, op)?;
        SUCCESS
    })
}

fn issue(function: Function, comm: ncclComm_t, stream: cudaStream_t, request: Request) -> ncclResult_t {
    entry(function, || issue::issue(comm, stream, &request))
}

const NO_REDOP: ncclRedOp_t = ncclRedOp_t::ncclSum;

type Buffers = (*const c_void, *mut c_void);

/// What a function asks for, without a configuration of the call.
fn request(
    kind: Kind,
    (send, recv): Buffers,
    (count, datatype): (usize, ncclDataType_t),
    redop: ncclRedOp_t,
    peer: c_int,
) -> Request {
    Request { kind, send, recv, count, datatype, redop, peer, config: 0 }
}

pub unsafe extern "C" fn ncclReduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    let request = request(Kind::Reduce, (sendbuff, recvbuff), (count, datatype), op, root);
    issue(functions::ncclReduce, comm, stream, request)
}

pub unsafe extern "C" fn ncclBroadcast(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    let request = request(Kind::Broadcast, (sendbuff, recvbuff), (count, datatype), NO_REDOP, root);
    issue(functions::ncclBroadcast, comm, stream, request)
}

pub unsafe extern "C" fn ncclAllReduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    let request = request(Kind::AllReduce, (sendbuff, recvbuff), (count, datatype), op, 0);
    issue(functions::ncclAllReduce, comm, stream, request)
}

pub unsafe extern "C" fn ncclReduceScatter(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    recvcount: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    let request = request(Kind::ReduceScatter, (sendbuff, recvbuff), (recvcount, datatype), op, 0);
    issue(functions::ncclReduceScatter, comm, stream, request)
}

pub unsafe extern "C" fn ncclAllGather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    sendcount: usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    let request = request(Kind::AllGather, (sendbuff, recvbuff), (sendcount, datatype), NO_REDOP, 0);
    issue(functions::ncclAllGather, comm, stream, request)
}

pub unsafe extern "C" fn ncclAlltoAll(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    let request = request(Kind::AlltoAll, (sendbuff, recvbuff), (count, datatype), NO_REDOP, 0);
    issue(functions::ncclAlltoAll, comm, stream, request)
}

pub unsafe extern "C" fn ncclGather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    let request = request(Kind::Gather, (sendbuff, recvbuff), (count, datatype), NO_REDOP, root);
    issue(functions::ncclGather, comm, stream, request)
}

pub unsafe extern "C" fn ncclScatter(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    let request = request(Kind::Scatter, (sendbuff, recvbuff), (count, datatype), NO_REDOP, root);
    issue(functions::ncclScatter, comm, stream, request)
}

pub unsafe extern "C" fn ncclSend(
    sendbuff: *const c_void,
    count: usize,
    datatype: ncclDataType_t,
    peer: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    let request = request(Kind::Send, (sendbuff, std::ptr::null_mut()), (count, datatype), NO_REDOP, peer);
    issue(functions::ncclSend, comm, stream, request)
}

pub unsafe extern "C" fn ncclRecv(
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    peer: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    let request = request(Kind::Recv, (std::ptr::null(), recvbuff), (count, datatype), NO_REDOP, peer);
    issue(functions::ncclRecv, comm, stream, request)
}

pub unsafe extern "C" fn ncclGroupStart() -> ncclResult_t {
    entry(functions::ncclGroupStart, || {
        group::start()?;
        SUCCESS
    })
}

pub unsafe extern "C" fn ncclGroupEnd() -> ncclResult_t {
    entry(functions::ncclGroupEnd, group::end)
}

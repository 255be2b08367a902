//! The one-sided functions of NCCL, and what it says of a communicator.

use std::ffi::{c_int, c_uint, c_void};

use super::{SUCCESS, put};
use crate::nccl::basics::error::{Failure, entry};
use crate::nccl::basics::safety::functions;
use crate::nccl::calls::one_sided::{self, Where};
use crate::nccl::calls::put::Put;
use crate::nccl::calls::{pointers, window};
use crate::nccl::state::inside::Manner;
use crate::nccl::state::registry;
use crate::settings::settings;
use crate::sys::*;

pub unsafe extern "C" fn ncclPutSignal(
    localbuff: *const c_void,
    count: usize,
    datatype: ncclDataType_t,
    peer: c_int,
    peerWin: ncclWindow_t,
    peerWinOffset: usize,
    sigIdx: c_int,
    ctx: c_int,
    flags: c_uint,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    entry(functions::ncclPutSignal, || {
        let place = Where { signal: sigIdx, context: ctx, flags };
        let what = Put { local: localbuff, count, datatype, window: peerWin, offset: peerWinOffset };
        one_sided::give(comm, stream, peer, place, Some(what))
    })
}

pub unsafe extern "C" fn ncclSignal(
    peer: c_int,
    sigIdx: c_int,
    ctx: c_int,
    flags: c_uint,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    entry(functions::ncclSignal, || {
        one_sided::give(comm, stream, peer, Where { signal: sigIdx, context: ctx, flags }, None)
    })
}

pub unsafe extern "C" fn ncclWaitSignal(
    nDesc: c_int,
    signalDescs: *mut ncclWaitSignalDesc_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    entry(functions::ncclWaitSignal, || {
        let count = usize::try_from(nDesc).unwrap_or(0);
        if signalDescs.is_null() || count == 0 {
            return Err(Failure::argument("there is nothing to wait for"));
        }
        // SAFETY: as C declares it: so many descriptors.
        let wanted = unsafe { std::slice::from_raw_parts(signalDescs.cast_const(), count) };
        one_sided::wait(comm, stream, wanted)
    })
}

pub unsafe extern "C" fn ncclWinGetUserPtr(
    comm: ncclComm_t,
    win: ncclWindow_t,
    outUserPtr: *mut *mut c_void,
) -> ncclResult_t {
    entry(functions::ncclWinGetUserPtr, || {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        let address = if settings().windows { window::begin(&comm, win)? } else { 0 };
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { put(outUserPtr, std::ptr::with_exposed_provenance_mut(address)) }
    })
}

pub unsafe extern "C" fn gpucommNcclLsaPointer(
    window: ncclWindow_t,
    offset: usize,
    lsaRank: c_int,
    address: *mut *mut c_void,
) -> ncclResult_t {
    entry(functions::gpucommNcclLsaPointer, || {
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { put(address, pointers::lsa(window, offset, lsaRank)?) }
    })
}

pub unsafe extern "C" fn gpucommNcclPeerPointer(
    window: ncclWindow_t,
    offset: usize,
    peer: c_int,
    address: *mut *mut c_void,
) -> ncclResult_t {
    entry(functions::gpucommNcclPeerPointer, || {
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { put(address, pointers::peer(window, offset, peer)?) }
    })
}

pub unsafe extern "C" fn gpucommNcclMultimemPointer(
    window: ncclWindow_t,
    _offset: usize,
    address: *mut *mut c_void,
) -> ncclResult_t {
    entry(functions::gpucommNcclMultimemPointer, || {
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { put(address, pointers::multimem(window)?) }
    })
}

pub unsafe extern "C" fn gpucommNcclProperties(
    comm: ncclComm_t,
    properties: *mut gpucommNcclProperties_t,
) -> ncclResult_t {
    entry(functions::gpucommNcclProperties, || {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        comm.ensure_settled()?;
        let maps = c_int::from(settings().windows);
        let found = gpucommNcclProperties_t {
            nvmlDev: comm.device,
            deviceApiSupport: maps,
            multimemSupport: 0,
            ginType: 0,
            nLsaTeams: if maps == 0 { comm.size as c_int } else { 1 },
            hostRmaSupport: maps,
            railedGinType: 0,
        };
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { put(properties, found) }?;
        SUCCESS
    })
}

//! The C functions of NCCL that take a configuration of the call, and those that fill structs of configurations in.

use std::ffi::{c_int, c_void};

use super::{NO_REDOP, request};
use crate::cuda::exports::cudaEventRecord;
use crate::nccl::basics::coll_config::{self, CollConfig};
use crate::nccl::basics::config;
use crate::nccl::basics::encryption;
use crate::nccl::basics::error::{cuda, entry};
use crate::nccl::basics::kind::Kind;
use crate::nccl::basics::safety::{Function, functions};
use crate::nccl::calls::{group, issue, simulate};
use crate::nccl::requests::request::Request;
use crate::sys::*;

/// Issues an operation with its configuration. The event is recorded before it, as by NCCL with CUDA before 12.3.
///
/// # Safety
/// As [`CollConfig::read`], and what C declares.
unsafe fn issue(
    function: Function,
    (comm, stream): (ncclComm_t, cudaStream_t),
    request: Request,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    entry(function, || {
        // SAFETY: the caller upholds the contract.
        let config = unsafe { CollConfig::read(request.kind, config) }?;
        if !config.event.is_null() {
            // SAFETY: the caller's event, as C declares it.
            match unsafe { cudaEventRecord(config.event, stream) } {
                cudaError::cudaSuccess => {}
                error => return Err(cuda("the event of the launch", error)),
            }
        }
        issue::issue(comm, stream, &Request { config: config.number, ..request })
    })
}

pub unsafe extern "C" fn ncclAllReduceConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    let request = request(Kind::AllReduce, (sendbuff, recvbuff), (count, datatype), op, 0);
    // SAFETY: the caller's pointers, as C declares them.
    unsafe { issue(functions::ncclAllReduceConfig, (comm, stream), request, config) }
}

pub unsafe extern "C" fn ncclBroadcastConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    let request = request(Kind::Broadcast, (sendbuff, recvbuff), (count, datatype), NO_REDOP, root);
    // SAFETY: the caller's pointers, as C declares them.
    unsafe { issue(functions::ncclBroadcastConfig, (comm, stream), request, config) }
}

pub unsafe extern "C" fn ncclReduceConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    let request = request(Kind::Reduce, (sendbuff, recvbuff), (count, datatype), op, root);
    // SAFETY: the caller's pointers, as C declares them.
    unsafe { issue(functions::ncclReduceConfig, (comm, stream), request, config) }
}

pub unsafe extern "C" fn ncclAllGatherConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    sendcount: usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    let request = request(Kind::AllGather, (sendbuff, recvbuff), (sendcount, datatype), NO_REDOP, 0);
    // SAFETY: the caller's pointers, as C declares them.
    unsafe { issue(functions::ncclAllGatherConfig, (comm, stream), request, config) }
}

pub unsafe extern "C" fn ncclReduceScatterConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    recvcount: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    let request = request(Kind::ReduceScatter, (sendbuff, recvbuff), (recvcount, datatype), op, 0);
    // SAFETY: the caller's pointers, as C declares them.
    unsafe { issue(functions::ncclReduceScatterConfig, (comm, stream), request, config) }
}

pub unsafe extern "C" fn ncclAlltoAllConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    let request = request(Kind::AlltoAll, (sendbuff, recvbuff), (count, datatype), NO_REDOP, 0);
    // SAFETY: the caller's pointers, as C declares them.
    unsafe { issue(functions::ncclAlltoAllConfig, (comm, stream), request, config) }
}

pub unsafe extern "C" fn ncclGatherConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    let request = request(Kind::Gather, (sendbuff, recvbuff), (count, datatype), NO_REDOP, root);
    // SAFETY: the caller's pointers, as C declares them.
    unsafe { issue(functions::ncclGatherConfig, (comm, stream), request, config) }
}

pub unsafe extern "C" fn ncclScatterConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    let request = request(Kind::Scatter, (sendbuff, recvbuff), (count, datatype), NO_REDOP, root);
    // SAFETY: the caller's pointers, as C declares them.
    unsafe { issue(functions::ncclScatterConfig, (comm, stream), request, config) }
}

pub unsafe extern "C" fn ncclGroupSimulateEnd(simInfo: *mut ncclSimInfo_t) -> ncclResult_t {
    entry(functions::ncclGroupSimulateEnd, || {
        if simInfo.is_null() {
            return group::end();
        }
        // SAFETY: not null, and as C declares it, valid for reads and writes.
        let (ended, estimate) = simulate::end(unsafe { &*simInfo });
        if let Some(estimate) = estimate {
            // SAFETY: as above.
            unsafe { (*simInfo).estimatedTime = estimate };
        }
        ended
    })
}

pub unsafe extern "C" fn gpucommNcclSimInfoInit(info: *mut ncclSimInfo_t) {
    if !info.is_null() {
        // SAFETY: not null, and as C declares it, valid for a write.
        unsafe { info.write(simulate::initial()) };
    }
}

pub unsafe extern "C" fn gpucommNcclCollConfigInit(config: *mut ncclCollConfig_t) {
    if !config.is_null() {
        // SAFETY: not null, and as C declares it, valid for a write.
        unsafe { config.write(coll_config::initial()) };
    }
}

pub unsafe extern "C" fn ncclSetEncryption(config: *const ncclEncryptionConfig_t) -> ncclResult_t {
    entry(functions::ncclSetEncryption, || {
        // SAFETY: the caller's pointer, as C declares it: null, or a config made by its initialiser.
        unsafe { encryption::set(config) }?;
        super::SUCCESS
    })
}

pub unsafe extern "C" fn gpucommNcclEncryptionConfigInit(config: *mut ncclEncryptionConfig_t) {
    if !config.is_null() {
        // SAFETY: not null, and as C declares it, valid for a write.
        unsafe { config.write(encryption::initial()) };
    }
}

pub unsafe extern "C" fn gpucommNcclConfigInit(config: *mut ncclConfig_t) {
    if !config.is_null() {
        // SAFETY: not null, and as C declares it, valid for a write.
        unsafe { config.write(config::initial()) };
    }
}

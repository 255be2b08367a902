//! The C functions.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]
use crate::sys::*;
use std::ffi::*;

pub unsafe extern "C" fn ncclGetVersion(_version: *mut c_int) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclGetUniqueId(_uniqueId: *mut ncclUniqueId) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclGetErrorString(_result: ncclResult_t) -> *const c_char {
    std::ptr::null()
}
pub unsafe extern "C" fn ncclGetLastError(_comm: ncclComm_t) -> *const c_char {
    std::ptr::null()
}
pub unsafe extern "C" fn ncclCommInitRankConfig(
    _comm: *mut ncclComm_t,
    _nranks: c_int,
    _commId: ncclUniqueId,
    _rank: c_int,
    _config: *mut ncclConfig_t,
) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclCommSplit(
    _comm: ncclComm_t,
    _color: c_int,
    _key: c_int,
    _newcomm: *mut ncclComm_t,
    _config: *mut ncclConfig_t,
) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclCommFinalize(_comm: ncclComm_t) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclCommDestroy(_comm: ncclComm_t) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclCommAbort(_comm: ncclComm_t) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclCommGetAsyncError(_comm: ncclComm_t, _asyncError: *mut ncclResult_t) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclCommCount(_comm: ncclComm_t, _count: *mut c_int) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclCommCuDevice(_comm: ncclComm_t, _device: *mut c_int) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclCommUserRank(_comm: ncclComm_t, _rank: *mut c_int) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclMemAlloc(_ptr: *mut *mut c_void, _size: usize) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclMemFree(_ptr: *mut c_void) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclCommWindowRegister(
    _comm: ncclComm_t,
    _buff: *mut c_void,
    _size: usize,
    _win: *mut ncclWindow_t,
    _winFlags: c_int,
) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclCommWindowDeregister(_comm: ncclComm_t, _win: ncclWindow_t) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclRedOpCreatePreMulSum(
    _op: *mut ncclRedOp_t,
    _scalar: *mut c_void,
    _datatype: ncclDataType_t,
    _residence: ncclScalarResidence_t,
    _comm: ncclComm_t,
) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclRedOpDestroy(_op: ncclRedOp_t, _comm: ncclComm_t) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclReduce(
    _sendbuff: *const c_void,
    _recvbuff: *mut c_void,
    _count: usize,
    _datatype: ncclDataType_t,
    _op: ncclRedOp_t,
    _root: c_int,
    _comm: ncclComm_t,
    _stream: cudaStream_t,
) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclBroadcast(
    _sendbuff: *const c_void,
    _recvbuff: *mut c_void,
    _count: usize,
    _datatype: ncclDataType_t,
    _root: c_int,
    _comm: ncclComm_t,
    _stream: cudaStream_t,
) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclAllReduce(
    _sendbuff: *const c_void,
    _recvbuff: *mut c_void,
    _count: usize,
    _datatype: ncclDataType_t,
    _op: ncclRedOp_t,
    _comm: ncclComm_t,
    _stream: cudaStream_t,
) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclReduceScatter(
    _sendbuff: *const c_void,
    _recvbuff: *mut c_void,
    _recvcount: usize,
    _datatype: ncclDataType_t,
    _op: ncclRedOp_t,
    _comm: ncclComm_t,
    _stream: cudaStream_t,
) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclAllGather(
    _sendbuff: *const c_void,
    _recvbuff: *mut c_void,
    _sendcount: usize,
    _datatype: ncclDataType_t,
    _comm: ncclComm_t,
    _stream: cudaStream_t,
) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclAlltoAll(
    _sendbuff: *const c_void,
    _recvbuff: *mut c_void,
    _count: usize,
    _datatype: ncclDataType_t,
    _comm: ncclComm_t,
    _stream: cudaStream_t,
) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclGather(
    _sendbuff: *const c_void,
    _recvbuff: *mut c_void,
    _count: usize,
    _datatype: ncclDataType_t,
    _root: c_int,
    _comm: ncclComm_t,
    _stream: cudaStream_t,
) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclScatter(
    _sendbuff: *const c_void,
    _recvbuff: *mut c_void,
    _count: usize,
    _datatype: ncclDataType_t,
    _root: c_int,
    _comm: ncclComm_t,
    _stream: cudaStream_t,
) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclSend(
    _sendbuff: *const c_void,
    _count: usize,
    _datatype: ncclDataType_t,
    _peer: c_int,
    _comm: ncclComm_t,
    _stream: cudaStream_t,
) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclRecv(
    _recvbuff: *mut c_void,
    _count: usize,
    _datatype: ncclDataType_t,
    _peer: c_int,
    _comm: ncclComm_t,
    _stream: cudaStream_t,
) -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclGroupStart() -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn ncclGroupEnd() -> ncclResult_t {
    ncclResult_t::ncclInternalError
}
pub unsafe extern "C" fn gpucommNcclConfigInit(_config: *mut ncclConfig_t) {}

//! The C functions.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]
use crate::sys::*;
use std::ffi::*;

pub unsafe extern "C" fn cudaGetErrorName(_error: cudaError_t) -> *const c_char {
    std::ptr::null()
}
pub unsafe extern "C" fn cudaGetErrorString(_error: cudaError_t) -> *const c_char {
    std::ptr::null()
}
pub unsafe extern "C" fn cudaGetLastError() -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaDriverGetVersion(_driverVersion: *mut c_int) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaRuntimeGetVersion(_runtimeVersion: *mut c_int) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaGetDeviceCount(_count: *mut c_int) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaGetDevice(_device: *mut c_int) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaSetDevice(_device: c_int) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaDeviceGetAttribute(
    _value: *mut c_int,
    _attr: cudaDeviceAttr,
    _device: c_int,
) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaDeviceGetPCIBusId(_pciBusId: *mut c_char, _len: c_int, _device: c_int) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaDeviceCanAccessPeer(
    _canAccessPeer: *mut c_int,
    _device: c_int,
    _peerDevice: c_int,
) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaDeviceEnablePeerAccess(_peerDevice: c_int, _flags: c_uint) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaDeviceGetP2PAttribute(
    _value: *mut c_int,
    _attr: cudaDeviceP2PAttr,
    _srcDevice: c_int,
    _dstDevice: c_int,
) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaDeviceGetStreamPriorityRange(
    _leastPriority: *mut c_int,
    _greatestPriority: *mut c_int,
) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaMemGetInfo(_free: *mut usize, _total: *mut usize) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaStreamCreateWithPriority(
    _pStream: *mut cudaStream_t,
    _flags: c_uint,
    _priority: c_int,
) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaStreamDestroy(_stream: cudaStream_t) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaStreamGetPriority(_hStream: cudaStream_t, _priority: *mut c_int) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaStreamGetFlags(_hStream: cudaStream_t, _flags: *mut c_uint) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaStreamQuery(_stream: cudaStream_t) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaStreamWaitEvent(
    _stream: cudaStream_t,
    _event: cudaEvent_t,
    _flags: c_uint,
) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaLaunchHostFunc(
    _stream: cudaStream_t,
    _fn_: cudaHostFn_t,
    _userData: *mut c_void,
) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaEventCreateWithFlags(_event: *mut cudaEvent_t, _flags: c_uint) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaEventDestroy(_event: cudaEvent_t) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaEventRecord(_event: cudaEvent_t, _stream: cudaStream_t) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaEventQuery(_event: cudaEvent_t) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaEventElapsedTime(_ms: *mut f32, _start: cudaEvent_t, _end: cudaEvent_t) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaMalloc(_devPtr: *mut *mut c_void, _size: usize) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaFree(_devPtr: *mut c_void) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaMallocFromPoolAsync(
    _ptr: *mut *mut c_void,
    _size: usize,
    _memPool: cudaMemPool_t,
    _stream: cudaStream_t,
) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaFreeAsync(_devPtr: *mut c_void, _hStream: cudaStream_t) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaHostAlloc(_pHost: *mut *mut c_void, _size: usize, _flags: c_uint) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaFreeHost(_ptr: *mut c_void) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaMemcpyAsync(
    _dst: *mut c_void,
    _src: *const c_void,
    _count: usize,
    _kind: cudaMemcpyKind,
    _stream: cudaStream_t,
) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaMemcpyPeerAsync(
    _dst: *mut c_void,
    _dstDevice: c_int,
    _src: *const c_void,
    _srcDevice: c_int,
    _count: usize,
    _stream: cudaStream_t,
) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn cudaMemsetAsync(
    _devPtr: *mut c_void,
    _value: c_int,
    _count: usize,
    _stream: cudaStream_t,
) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn gpucommDeviceInfo(_info: *mut gpucommDeviceInfo_t, _device: c_int) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn gpucommPoolCreate(_pool: *mut cudaMemPool_t, _device: c_int) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}
pub unsafe extern "C" fn gpucommDriverEntryPoint(
    _function: *mut *mut c_void,
    _symbol: *const c_char,
    _version: c_uint,
) -> cudaError_t {
    cudaError::cudaErrorNotSupported
}

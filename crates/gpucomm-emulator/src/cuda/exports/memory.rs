//! Memory of devices and of the host, copies and fills.

use super::{Out, launch, runtime};
use crate::cuda::core::device::{current, device};
use crate::cuda::core::safety::functions;
use crate::cuda::tasks::memory::{self, POOLS, Pool};
use crate::cuda::tasks::memset::Shape;
use crate::cuda::tasks::{copy, host, memset};
use crate::memory::block::Origin;
use crate::sys::*;
use crate::{fault, report};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

/// Portable, mapped and write-combined: all pinned memory here is the first two and needs not be the third.
const HOST_ALLOC_FLAGS: c_uint = 0x7;

pub unsafe extern "C" fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> cudaError_t {
    runtime(functions::cudaMemGetInfo, || {
        // SAFETY: as C declares it: a `size_t` to write to, or null.
        let (free_out, total_out) = unsafe { (Out::new(free)?, Out::new(total)?) };
        let device = current()?;
        device.check()?;
        let (free, total) = device.heap.room();
        free_out.set(free as usize);
        total_out.set(total as usize);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaMalloc(ptr: *mut *mut c_void, size: usize) -> cudaError_t {
    runtime(functions::cudaMalloc, || {
        // SAFETY: as C declares it: a pointer to write to, or null.
        let out = unsafe { Out::new(ptr)? };
        let device = current()?;
        if fault::on_alloc(device.number(), size) {
            return Err(cudaError::cudaErrorMemoryAllocation);
        }
        out.set(memory::allocate(device.ordinal, size, Origin::Malloc)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaFree(ptr: *mut c_void) -> cudaError_t {
    runtime(functions::cudaFree, || memory::free(ptr))
}

pub unsafe extern "C" fn gpucommPointerInfo(info: *mut gpucommPointerInfo_t, ptr: *const c_void) -> cudaError_t {
    runtime(functions::gpucommPointerInfo, || {
        // SAFETY: as the header declares it: a place to write to, or null.
        let out = unsafe { Out::new(info)? };
        let (kind, device) = memory::kind_at(ptr.addr())?;
        out.set(gpucommPointerInfo_t { kind: kind as c_int, device });
        Ok(())
    })
}

pub unsafe extern "C" fn gpucommPoolCreate(handle: *mut cudaMemPool_t, ordinal: c_int) -> cudaError_t {
    runtime(functions::gpucommPoolCreate, || {
        // SAFETY: as C declares it: a handle to write to, or null.
        let out = unsafe { Out::new(handle)? };
        let device = device(ordinal)?;
        device.check()?;
        out.set(POOLS.insert(Arc::new(Pool { device })).ok_or(cudaError::cudaErrorMemoryAllocation)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaMallocFromPoolAsync(
    ptr: *mut *mut c_void,
    size: usize,
    pool: cudaMemPool_t,
    stream: cudaStream_t,
) -> cudaError_t {
    launch(functions::cudaMallocFromPoolAsync, stream, |stream| {
        // SAFETY: as C declares it: a pointer to write to, or null.
        let out = unsafe { Out::new(ptr)? };
        let pool = POOLS.get(pool).ok_or_else(|| {
            report::violation(format!("cudaMallocFromPoolAsync: {pool:p} is no pool"));
            cudaError::cudaErrorInvalidValue
        })?;
        if fault::on_alloc(pool.device.number(), size) {
            return Err(cudaError::cudaErrorMemoryAllocation);
        }
        out.set(memory::allocate_async(pool.device, size, stream)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaFreeAsync(ptr: *mut c_void, stream: cudaStream_t) -> cudaError_t {
    launch(functions::cudaFreeAsync, stream, |stream| memory::free_async(ptr, stream))
}

pub unsafe extern "C" fn cudaHostAlloc(ptr: *mut *mut c_void, size: usize, flags: c_uint) -> cudaError_t {
    runtime(functions::cudaHostAlloc, || {
        // SAFETY: as C declares it: a pointer to write to, or null.
        let out = unsafe { Out::new(ptr)? };
        if flags & !HOST_ALLOC_FLAGS != 0 {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        current()?.check()?;
        out.set(host::allocate(size)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaFreeHost(ptr: *mut c_void) -> cudaError_t {
    runtime(functions::cudaFreeHost, || {
        host::free(ptr)?;
        current()?.check()
    })
}

pub unsafe extern "C" fn cudaMemcpyAsync(
    dst: *mut c_void,
    src: *const c_void,
    count: usize,
    kind: cudaMemcpyKind,
    stream: cudaStream_t,
) -> cudaError_t {
    launch(functions::cudaMemcpyAsync, stream, |stream| copy::copy(dst, src, count, kind, stream))
}

pub unsafe extern "C" fn cudaMemcpyPeerAsync(
    dst: *mut c_void,
    dst_device: c_int,
    src: *const c_void,
    src_device: c_int,
    count: usize,
    stream: cudaStream_t,
) -> cudaError_t {
    launch(functions::cudaMemcpyPeerAsync, stream, |stream| {
        copy::copy_peer((dst, device(dst_device)?), (src, device(src_device)?), count, stream)
    })
}

pub unsafe extern "C" fn cudaMemsetAsync(
    ptr: *mut c_void,
    value: c_int,
    count: usize,
    stream: cudaStream_t,
) -> cudaError_t {
    launch(functions::cudaMemsetAsync, stream, |stream| {
        // C converts the value to an unsigned char.
        memset::fill("cudaMemsetAsync", ptr, value as u8, Shape::row(count), stream)
    })
}

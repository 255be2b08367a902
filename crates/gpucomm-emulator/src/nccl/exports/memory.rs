//! The C functions of NCCL that have to do with memory: allocated, registered, and windows over it.

use std::ffi::{c_int, c_void};

use super::{SUCCESS, put};
use crate::nccl::basics::error::{Failure, entry};
use crate::nccl::basics::safety::functions;
use crate::nccl::calls::{registration, suspend, window};
use crate::nccl::state::inside::Manner;
use crate::nccl::state::registry;
use crate::sys::{ncclComm_t, ncclCommMemStat_t, ncclResult_t, ncclWindow_t};

pub unsafe extern "C" fn ncclMemAlloc(ptr: *mut *mut c_void, size: usize) -> ncclResult_t {
    entry(functions::ncclMemAlloc, || {
        if ptr.is_null() {
            return Err(Failure::argument("the place for the pointer is null"));
        }
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { put(ptr, window::allocate(size)?) }
    })
}

pub unsafe extern "C" fn ncclMemFree(ptr: *mut c_void) -> ncclResult_t {
    entry(functions::ncclMemFree, || {
        if !ptr.is_null() {
            window::free(ptr)?;
        }
        SUCCESS
    })
}

pub unsafe extern "C" fn ncclCommWindowRegister(
    comm: ncclComm_t,
    buff: *mut c_void,
    size: usize,
    win: *mut ncclWindow_t,
    winFlags: c_int,
) -> ncclResult_t {
    entry(functions::ncclCommWindowRegister, || {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        // SAFETY: the caller's pointers, as C declares them.
        unsafe { window::register(&comm, buff, size, win, winFlags) }
    })
}

pub unsafe extern "C" fn ncclCommWindowDeregister(comm: ncclComm_t, win: ncclWindow_t) -> ncclResult_t {
    entry(functions::ncclCommWindowDeregister, || {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        window::deregister(&comm, win)?;
        SUCCESS
    })
}

pub unsafe extern "C" fn ncclCommSuspend(comm: ncclComm_t, flags: c_int) -> ncclResult_t {
    entry(functions::ncclCommSuspend, || {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        suspend::suspend(&comm, flags)
    })
}

pub unsafe extern "C" fn ncclCommResume(comm: ncclComm_t) -> ncclResult_t {
    entry(functions::ncclCommResume, || {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        suspend::resume(&comm)
    })
}

pub unsafe extern "C" fn ncclCommMemStats(comm: ncclComm_t, stat: ncclCommMemStat_t, value: *mut u64) -> ncclResult_t {
    entry(functions::ncclCommMemStats, || {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { put(value, suspend::statistic(&comm, stat.0)?) }
    })
}

pub unsafe extern "C" fn ncclCommRegister(
    comm: ncclComm_t,
    buff: *mut c_void,
    size: usize,
    handle: *mut *mut c_void,
) -> ncclResult_t {
    entry(functions::ncclCommRegister, || {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { put(handle, registration::register(&comm, buff, size)?) }
    })
}

pub unsafe extern "C" fn ncclCommDeregister(comm: ncclComm_t, handle: *mut c_void) -> ncclResult_t {
    entry(functions::ncclCommDeregister, || {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        registration::deregister(&comm, handle)?;
        SUCCESS
    })
}

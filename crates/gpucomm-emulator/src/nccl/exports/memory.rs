//! The functions of NCCL that concern memory: allocated, registered, and windows over it.

use std::ffi::{c_int, c_void};

use super::{Class, Entered, frame};
use crate::nccl::basics::error::Failure;
use crate::nccl::calls::window;
use crate::settings::settings;
use crate::sys::{ncclResult_t, ncclWindow_t};
use crate::table::{Out, exports};

type Error = Failure;
type Status = ncclResult_t;

exports! { MEMORY: abi;
    Unsafe fn ncclMemAlloc(ptr: Out<*mut c_void>, size: usize) {
        ptr.set(window::allocate(size)?);
        Ok(())
    }

    Unsafe fn ncclMemFree(ptr: *mut c_void) { if ptr.is_null() { Ok(()) } else { window::free(ptr) } }

    Job fn ncclCommWindowRegister(
        own: Entered,
        buff: *mut c_void,
        size: usize,
        win: *mut ncclWindow_t,
        winFlags: c_int,
    ) {
        // SAFETY: the caller's pointers, as C declares them.
        unsafe { window::register(&own.comm, buff, size, win, winFlags) }
    }

    Blind fn ncclCommWindowDeregister(own: Entered, win: ncclWindow_t) { window::deregister(&own.comm, win) }

    Any(2_29_02) fn ncclWinGetUserPtr(own: Entered, win: ncclWindow_t, outUserPtr: Out<*mut c_void>) {
        let address = if settings().windows { window::begin(&own.comm, win)? } else { 0 };
        outUserPtr.set(std::ptr::with_exposed_provenance_mut(address));
        Ok(())
    }

    Any(2_29_02) fn gpucommNcclLsaPointer(
        window: ncclWindow_t,
        offset: usize,
        lsaRank: c_int,
        address: Out<*mut c_void>,
    ) {
        address.set(window::lsa_pointer(window, offset, lsaRank)?);
        Ok(())
    }

    Any(2_29_02) fn gpucommNcclPeerPointer(
        window: ncclWindow_t,
        offset: usize,
        peer: c_int,
        address: Out<*mut c_void>,
    ) {
        address.set(window::peer_pointer(window, offset, peer)?);
        Ok(())
    }

    Any(2_29_02) fn gpucommNcclMultimemPointer(window: ncclWindow_t, _offset: usize, address: Out<*mut c_void>) {
        address.set(window::multimem_pointer(window)?);
        Ok(())
    }

    Any fn ncclCommRegister(own: Entered, buff: *mut c_void, size: usize, handle: Out<*mut c_void>) {
        handle.set(window::register_buffer(&own.comm, buff, size)?);
        Ok(())
    }

    Unsafe fn ncclCommDeregister(own: Entered, handle: *mut c_void) { window::deregister_buffer(&own.comm, handle) }
}

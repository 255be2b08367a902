//! Calls of the driver, past the safe layer.

use std::ffi::{CStr, c_int, c_uint, c_void};

use gpucomm::{Device, sys};

fn entry(symbol: &CStr) -> *mut c_void {
    let mut function = std::ptr::null_mut();
    // SAFETY: writes one pointer to the address given and reads a C string.
    let code = unsafe { sys::gpucommDriverEntryPoint(&raw mut function, symbol.as_ptr(), 12010) };
    assert!(code == sys::cudaError::cudaSuccess && !function.is_null(), "{symbol:?}");
    function
}

/// Wraps `cuMulticastAddDevice`.
pub fn add(multicast: u64, device: Device) {
    // SAFETY: the function of this name has this type.
    let add: unsafe extern "C" fn(u64, c_int) -> c_uint =
        unsafe { std::mem::transmute(entry(c"cuMulticastAddDevice")) };
    // SAFETY: a live object.
    assert_eq!(unsafe { add(multicast, device.ordinal()) }, 0);
}

/// Wraps `cuMulticastUnbind`.
pub fn unbind(multicast: u64, device: Device, at: usize, bytes: usize) -> u32 {
    // SAFETY: the function of this name has this type.
    let unbind: unsafe extern "C" fn(u64, c_int, usize, usize) -> c_uint =
        unsafe { std::mem::transmute(entry(c"cuMulticastUnbind")) };
    // SAFETY: a live object.
    unsafe { unbind(multicast, device.ordinal(), at, bytes) }
}

/// Wraps `cuMemRelease`.
pub fn release(handle: u64) {
    // SAFETY: the function of this name has this type.
    let release: unsafe extern "C" fn(u64) -> c_uint = unsafe { std::mem::transmute(entry(c"cuMemRelease")) };
    // SAFETY: a live handle, which nobody uses after this.
    assert_eq!(unsafe { release(handle) }, 0);
}

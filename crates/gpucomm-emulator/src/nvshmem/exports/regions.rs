//! Regions in which transfers are sent in batches.

use std::ffi::c_int;

use super::super::basics::entry::Class;
use super::super::calls::batches;
use super::status;
use crate::sys::*;

pub unsafe extern "C" fn nvshmemx_region_start(
    handle: *mut nvshmemx_region_handle_t,
    attrs: *const nvshmemx_region_attrs_t,
) -> c_int {
    // SAFETY: null, or the attributes of the caller.
    let hints = unsafe { attrs.as_ref() }.map_or(NVSHMEMX_REGION_HINT_NONE, |attrs| attrs.hints);
    status("nvshmemx_region_start", Class::Any, || {
        let started = batches::start(hints, !handle.is_null())?;
        // SAFETY: it is not null, and a place for a handle then.
        unsafe { *handle = started };
        Ok(())
    })
}

pub unsafe extern "C" fn nvshmemx_region_stop(handle: nvshmemx_region_handle_t) -> c_int {
    status("nvshmemx_region_stop", Class::Any, || batches::stop(handle))
}

//! The start, the end, and who and what this is.

use std::ffi::{c_char, c_int, c_uint};

use super::super::basics::entry::{Class, entry, wrong};
use super::super::calls::life;
use super::super::state::life as state;
use super::{done, status};
use crate::settings::settings;
use crate::sys::*;

pub unsafe extern "C" fn gpucommNvshmemUniqueIdInit(id: *mut nvshmemx_uniqueid_t) {
    // SAFETY: the caller's pointer, as C declares it.
    unsafe { id.write(life::initial_id()) };
}

pub unsafe extern "C" fn gpucommNvshmemAttrInit(attr: *mut nvshmemx_init_attr_t) {
    // SAFETY: the caller's pointer, as C declares it.
    unsafe { attr.write(life::initial_attr()) };
}

pub unsafe extern "C" fn gpucommNvshmemTeamConfigInit(config: *mut nvshmem_team_config_t) {
    // SAFETY: the caller's pointer, as C declares it.
    unsafe { config.write(super::super::state::pe::config()) };
}

pub unsafe extern "C" fn gpucommNvshmemHasNccl() -> c_int {
    1
}

pub unsafe extern "C" fn nvshmemx_get_uniqueid(uniqueid: *mut nvshmemx_uniqueid_t) -> c_int {
    status("nvshmemx_get_uniqueid", Class::Any, || {
        if uniqueid.is_null() {
            return Err(wrong("the place for the id is null"));
        }
        let id = life::unique_id()?;
        // SAFETY: not null, and the caller's pointer, as C declares it.
        unsafe { uniqueid.write(id) };
        Ok(())
    })
}

pub unsafe extern "C" fn nvshmemx_set_attr_uniqueid_args(
    myrank: c_int,
    nranks: c_int,
    uniqueid: *const nvshmemx_uniqueid_t,
    attr: *mut nvshmemx_init_attr_t,
) -> c_int {
    status("nvshmemx_set_attr_uniqueid_args", Class::Any, || {
        if uniqueid.is_null() || attr.is_null() {
            return Err(wrong("the id or the attribute is null"));
        }
        // SAFETY: not null, and the caller's pointer, as C declares it.
        let args = unsafe { &mut (*attr).args.uid_args };
        (args.id, args.myrank, args.nranks) = (uniqueid.cast_mut(), myrank, nranks);
        Ok(())
    })
}

pub unsafe extern "C" fn nvshmemx_hostlib_init_attr(flags: c_uint, attr: *mut nvshmemx_init_attr_t) -> c_int {
    status("nvshmemx_hostlib_init_attr", Class::Waits, || {
        // SAFETY: the caller's pointer, as C declares it: an attribute, or null.
        let attr = unsafe { attr.as_ref() };
        // SAFETY: the caller keeps the id that the attribute names.
        unsafe { life::init(flags, attr) }
    })
}

pub unsafe extern "C" fn nvshmemx_init_status() -> c_int {
    state::status()
}

pub unsafe extern "C" fn nvshmemx_hostlib_finalize() {
    done("nvshmemx_hostlib_finalize", Class::Waits, life::finalize);
}

pub unsafe extern "C" fn nvshmem_query_thread(provided: *mut c_int) {
    // SAFETY: the caller's pointer, as C declares it.
    unsafe { provided.write(NVSHMEM_THREAD_SERIALIZED) };
}

/// With a unique id, the library ends nothing either.
pub unsafe extern "C" fn nvshmem_global_exit(_status: c_int) {}

pub unsafe extern "C" fn nvshmem_my_pe() -> c_int {
    entry(
        "nvshmem_my_pe",
        Class::Any,
        |_| -1,
        || state::boot().map(|boot| boot.me as c_int).ok_or_else(|| wrong("NVSHMEM is not started")),
    )
}

pub unsafe extern "C" fn nvshmem_n_pes() -> c_int {
    entry(
        "nvshmem_n_pes",
        Class::Any,
        |_| -1,
        || state::boot().map(|boot| boot.size as c_int).ok_or_else(|| wrong("NVSHMEM is not started")),
    )
}

pub unsafe extern "C" fn nvshmem_info_get_version(major: *mut c_int, minor: *mut c_int) {
    // SAFETY: the caller's pointers, as C declares them.
    unsafe {
        major.write(NVSHMEM_MAJOR_VERSION.cast_signed());
        minor.write(NVSHMEM_MINOR_VERSION.cast_signed());
    }
}

pub unsafe extern "C" fn nvshmem_info_get_name(name: *mut c_char) {
    let [major, minor, patch] = version();
    let text = format!("gpucomm's emulator of NVSHMEM v{major}.{minor}.{patch}\0");
    // SAFETY: the caller's pointer, as C declares it: room for NVSHMEM_MAX_NAME_LEN bytes, which are more.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len()) };
}

pub unsafe extern "C" fn nvshmemx_vendor_get_version_info(major: *mut c_int, minor: *mut c_int, patch: *mut c_int) {
    // SAFETY: the caller's pointers, as C declares them.
    unsafe {
        let [a, b, c] = version();
        major.write(a);
        minor.write(b);
        patch.write(c);
    }
}

/// Which version this stands for.
fn version() -> [c_int; 3] {
    let code = settings().nvshmem.cast_signed();
    [code / 1_00_00, code / 1_00 % 1_00, code % 1_00]
}

//! Symmetric memory, and memory that is registered.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::super::basics::entry::{Class, entry, refused, wrong};
use super::super::basics::kind::Kind;
use super::super::calls::{memory, registration};
use super::super::state::life;
use super::{done, status};
use crate::sys::{NVSHMEMX_ERROR_INVALID_VALUE, nvshmem_team_t};

pub unsafe extern "C" fn nvshmem_malloc(size: usize) -> *mut c_void {
    entry("nvshmem_malloc", Class::Waits, |_| null_mut(), || memory::allocate(Kind::Malloc, size, 0))
}

pub unsafe extern "C" fn nvshmem_calloc(count: usize, size: usize) -> *mut c_void {
    entry(
        "nvshmem_calloc",
        Class::Waits,
        |_| null_mut(),
        || {
            let bytes =
                count.checked_mul(size).ok_or_else(|| wrong(format!("{count} times {size} bytes are too many")))?;
            memory::allocate(Kind::Calloc, bytes, 0)
        },
    )
}

pub unsafe extern "C" fn nvshmem_align(alignment: usize, size: usize) -> *mut c_void {
    entry(
        "nvshmem_align",
        Class::Waits,
        |_| null_mut(),
        || {
            if !alignment.is_power_of_two() {
                let text = format!("the alignment is {alignment}, expected a power of two");
                return Err(refused(NVSHMEMX_ERROR_INVALID_VALUE, text));
            }
            memory::allocate(Kind::Align, size, alignment)
        },
    )
}

pub unsafe extern "C" fn nvshmem_free(ptr: *mut c_void) {
    done("nvshmem_free", Class::Waits, || memory::free(ptr));
}

pub unsafe extern "C" fn nvshmem_ptr(ptr: *const c_void, pe: c_int) -> *mut c_void {
    entry(
        "nvshmem_ptr",
        Class::Any,
        |_| null_mut(),
        || {
            let this = life::pe()?;
            let other = this.pe(pe)?;
            Ok(memory::peer(&this, ptr, other))
        },
    )
}

/// Where GPUCOMM_EMULATOR_NVLS does not say otherwise no team has multicast memory, as where the devices have none. What is there is this PE's own.
pub unsafe extern "C" fn nvshmemx_mc_ptr(team: nvshmem_team_t, ptr: *const c_void) -> *mut c_void {
    entry(
        "nvshmemx_mc_ptr",
        Class::Any,
        |_| null_mut(),
        || {
            let pe = life::pe()?;
            let team = pe.teams.get(team)?;
            let switches = pe.switches(&team.circle.members);
            Ok(if switches { memory::peer(&pe, ptr, pe.me()) } else { null_mut() })
        },
    )
}

pub unsafe extern "C" fn nvshmemx_buffer_register(addr: *mut c_void, length: usize) -> c_int {
    status("nvshmemx_buffer_register", Class::Waits, || registration::register(addr, length))
}

pub unsafe extern "C" fn nvshmemx_buffer_unregister(addr: *mut c_void) -> c_int {
    status("nvshmemx_buffer_unregister", Class::Waits, || registration::unregister(addr))
}

pub unsafe extern "C" fn nvshmemx_buffer_unregister_all() {
    done("nvshmemx_buffer_unregister_all", Class::Waits, registration::unregister_all);
}

pub unsafe extern "C" fn nvshmemx_buffer_register_symmetric(
    buf_ptr: *mut c_void,
    size: usize,
    flags: c_int,
) -> *mut c_void {
    entry(
        "nvshmemx_buffer_register_symmetric",
        Class::Waits,
        |_| null_mut(),
        || registration::register_symmetric(buf_ptr, size, flags),
    )
}

pub unsafe extern "C" fn nvshmemx_buffer_unregister_symmetric(mmap_ptr: *mut c_void, size: usize) -> c_int {
    status("nvshmemx_buffer_unregister_symmetric", Class::Waits, || registration::unregister_symmetric(mmap_ptr, size))
}

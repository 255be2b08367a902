//! The functions of NVSHMEM that concern symmetric memory, and memory that is registered.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::super::state::life;
use super::{Answer, Class, frame, frame_of};
use crate::nvshmem::basics::Kind;
use crate::nvshmem::basics::{Failed, refused, wrong};
use crate::nvshmem::calls::memory;
use crate::sys::{NVSHMEMX_ERROR_INVALID_VALUE, nvshmem_team_t};
use crate::table::exports;

type Error = Failed;
type Status = c_int;

exports! { MEMORY: abi;
    Waits fn nvshmem_malloc(size: usize) -> *mut c_void { memory::allocate(Kind::Malloc, size, 0) }

    Waits fn nvshmem_calloc(count: usize, size: usize) -> *mut c_void {
        let bytes = count.checked_mul(size).ok_or_else(|| wrong(format!("{count} times {size} bytes are too many")))?;
        memory::allocate(Kind::Calloc, bytes, 0)
    }

    Waits fn nvshmem_align(alignment: usize, size: usize) -> *mut c_void {
        if !alignment.is_power_of_two() {
            let text = format!("the alignment is {alignment}, expected a power of two");
            return Err(refused(NVSHMEMX_ERROR_INVALID_VALUE, text));
        }
        memory::allocate(Kind::Align, size, alignment)
    }

    Waits fn nvshmem_free(ptr: *mut c_void) -> () { memory::free(ptr) }

    Any fn nvshmem_ptr(ptr: *const c_void, pe: c_int) -> *mut c_void {
        let this = life::pe()?;
        let other = this.pe(pe)?;
        Ok(memory::peer(&this, ptr, other))
    }

    /// No team has multicast memory unless GPUCOMM_EMULATOR_NVLS says so, as if the devices had none. What it has is this PE's
    /// own memory.
    Any fn nvshmemx_mc_ptr(team: nvshmem_team_t, ptr: *const c_void) -> *mut c_void {
        let pe = life::pe()?;
        let team = pe.teams.get(team)?;
        let switches = pe.switches(&team.group.members);
        Ok(if switches { memory::peer(&pe, ptr, pe.me()) } else { null_mut() })
    }

    Waits fn nvshmemx_buffer_register(addr: *mut c_void, length: usize) { memory::register(addr, length) }

    Waits fn nvshmemx_buffer_unregister(addr: *mut c_void) { memory::unregister(addr) }

    Waits fn nvshmemx_buffer_unregister_all() -> () { memory::unregister_all() }

    Waits fn nvshmemx_buffer_register_symmetric(buf_ptr: *mut c_void, size: usize, flags: c_int) -> *mut c_void {
        memory::register_symmetric(buf_ptr, size, flags)
    }

    Waits fn nvshmemx_buffer_unregister_symmetric(mmap_ptr: *mut c_void, size: usize) {
        memory::unregister_symmetric(mmap_ptr, size)
    }
}

//! The functions of NVSHMEM that start and end it, describe it, and prepare it for kernels.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use super::super::state::pe::Pe;
use super::super::state::{life as state, pe};
use super::{Answer, Class, Pes, frame, frame_of};
use crate::nvshmem::basics::{Failed, Outcome, refused, wrong};
use crate::nvshmem::calls::{life, rma};
use crate::settings::settings;
use crate::sys::*;
use crate::table::{In, Out, exports};

type Error = Failed;
type Status = c_int;

/// Which version this stands for.
fn version() -> [c_int; 3] {
    let code = settings().nvshmem.cast_signed();
    [code / 1_00_00, code / 1_00 % 1_00, code % 1_00]
}

exports! { CONTEXT: abi;
    Bare fn gpucommNvshmemUniqueIdInit(id: *mut nvshmemx_uniqueid_t) {
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { id.write(life::initial_id()) };
    }

    Bare fn gpucommNvshmemAttrInit(attr: *mut nvshmemx_init_attr_t) {
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { attr.write(life::initial_attr()) };
    }

    Bare fn gpucommNvshmemTeamConfigInit(config: *mut nvshmem_team_config_t) {
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { config.write(pe::config()) };
    }

    Bare fn gpucommNvshmemHasNccl() -> c_int { 1 }

    Any fn nvshmemx_get_uniqueid(id: Out<nvshmemx_uniqueid_t>) {
        id.set(life::unique_id()?);
        Ok(())
    }

    Any fn nvshmemx_set_attr_uniqueid_args(
        myrank: c_int,
        nranks: c_int,
        uniqueid: *const nvshmemx_uniqueid_t,
        attr: *mut nvshmemx_init_attr_t,
    ) {
        if uniqueid.is_null() || attr.is_null() {
            return Err(wrong("the id or the attribute is null"));
        }
        // SAFETY: not null, and the caller's pointer, as C declares it.
        let args = unsafe { &mut (*attr).args.uid_args };
        (args.id, args.myrank, args.nranks) = (uniqueid.cast_mut(), myrank, nranks);
        Ok(())
    }

    Waits fn nvshmemx_hostlib_init_attr(flags: c_uint, attr: *mut nvshmemx_init_attr_t) {
        // SAFETY: the caller's pointer, as C declares it: an attribute, or null. The caller keeps the id that it names.
        unsafe { life::init(flags, attr.as_ref()) }
    }

    Bare fn nvshmemx_init_status() -> c_int { state::status() }

    Waits fn nvshmemx_hostlib_finalize() -> () { life::finalize() }

    Bare fn nvshmem_query_thread(provided: *mut c_int) {
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { provided.write(NVSHMEM_THREAD_SERIALIZED) };
    }

    /// With a unique id, the library ends nothing either.
    Bare fn nvshmem_global_exit(_status: c_int) {}

    Any fn nvshmem_my_pe() -> Pes {
        state::boot().map(|boot| boot.me as c_int).ok_or_else(|| wrong("NVSHMEM is not started"))
    }

    Any fn nvshmem_n_pes() -> Pes {
        state::boot().map(|boot| boot.size as c_int).ok_or_else(|| wrong("NVSHMEM is not started"))
    }

    Bare fn nvshmem_info_get_version(major: *mut c_int, minor: *mut c_int) {
        // SAFETY: the caller's pointers, as C declares them.
        unsafe {
            major.write(NVSHMEM_MAJOR_VERSION.cast_signed());
            minor.write(NVSHMEM_MINOR_VERSION.cast_signed());
        }
    }

    Bare fn nvshmem_info_get_name(name: *mut c_char) {
        let [major, minor, patch] = version();
        let text = format!("gpucomm's emulator of NVSHMEM v{major}.{minor}.{patch}\0");
        // SAFETY: the caller's pointer, as C declares it: room for NVSHMEM_MAX_NAME_LEN bytes, which are more.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len()) };
    }

    Bare fn nvshmemx_vendor_get_version_info(major: *mut c_int, minor: *mut c_int, patch: *mut c_int) {
        // SAFETY: the caller's pointers, as C declares them.
        unsafe {
            let [a, b, c] = version();
            major.write(a);
            minor.write(b);
            patch.write(c);
        }
    }

    Any fn nvshmemx_region_start(handle: Option<Out<nvshmemx_region_handle_t>>, attrs: In<nvshmemx_region_attrs_t>) {
        let hints = attrs.get().map_or(NVSHMEMX_REGION_HINT_NONE, |attrs| attrs.hints);
        let started = rma::start_batch(hints, handle.is_some())?;
        if let Some(handle) = handle {
            handle.set(started);
        }
        Ok(())
    }

    Any fn nvshmemx_region_stop(handle: nvshmemx_region_handle_t) { rma::stop_batch(handle) }

    Waits fn nvshmemx_qp_create(num_qps: c_int, out_qp_array: Option<Out<*mut nvshmemx_qp_handle_t>>) {
        let made = rma::create_queue_pairs(num_qps)?;
        out_qp_array.ok_or_else(|| wrong("the place for the queue pairs is null"))?.set(made);
        Ok(())
    }
}

/// Devices of the emulator run no kernels, so they need no module or library. The library waits for the
/// whole device when it inits one.
fn prepare<T>(handle: *mut T) -> Outcome<Arc<Pe>> {
    if handle.is_null() {
        return Err(wrong("the module or library is null"));
    }
    state::pe()
}

fn no_kernel(kernel: *const c_void) -> Outcome {
    state::pe()?;
    let text = format!("{kernel:p} is no kernel of this device, which runs none: it is emulated");
    Err(refused(NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED, text))
}

exports! { KERNELS: abi;
    Waits fn nvshmemx_cumodule_init(handle: CUmodule) { prepare(handle).map(|pe| pe.device.synchronize()) }
    Waits fn nvshmemx_cumodule_finalize(handle: CUmodule) { prepare(handle).map(drop) }
    Waits fn nvshmemx_culibrary_init(handle: CUlibrary) { prepare(handle).map(|pe| pe.device.synchronize()) }
    Waits fn nvshmemx_culibrary_finalize(handle: CUlibrary) { prepare(handle).map(drop) }

    Enqueues fn gpucommNvshmemCollectiveLaunch as nvshmemx_collective_launch (
        kernel: *const c_void,
        grid: *const c_uint,
        block: *const c_uint,
        _args: *mut *mut c_void,
        _shared: usize,
        _stream: cudaStream_t,
    ) {
        if grid.is_null() || block.is_null() {
            return Err(wrong("the grid or the block is null"));
        }
        no_kernel(kernel)
    }

    Enqueues fn gpucommNvshmemCollectiveLaunchConfig as nvshmemx_collective_launch_attr (
        config: *const c_void,
        kernel: *const c_void,
        _args: *mut *mut c_void,
    ) {
        if config.is_null() {
            return Err(wrong("the configuration is null"));
        }
        no_kernel(kernel)
    }

    Any fn gpucommNvshmemCollectiveLaunchGrid as nvshmemx_collective_launch_query_gridsize (
        kernel: *const c_void,
        block: *const c_uint,
        _shared: usize,
        blocks: *mut c_int,
    ) {
        if block.is_null() || blocks.is_null() {
            return Err(wrong("the block, or the place for the number, is null"));
        }
        no_kernel(kernel)
    }
}

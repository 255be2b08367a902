//! What kernels need. Devices of the emulator run none.

use std::ffi::{c_int, c_uint, c_void};

use super::super::basics::entry::{Class, Outcome, refused, wrong};
use super::super::calls::queue_pairs;
use super::super::state::life;
use super::status;
use crate::sys::*;

macro_rules! of_kernels {
    ($($name:ident $handle:ty, $waits:literal;)*) => {$(
        /// Devices of the emulator run no kernels, so there is nothing to tell them. Some wait for the whole device, as in the library.
        pub unsafe extern "C" fn $name(handle: $handle) -> c_int {
            status(stringify!($name), Class::Waits, || {
                if handle.is_null() {
                    return Err(wrong("the module or library is null"));
                }
                let pe = life::pe()?;
                if $waits {
                    pe.device.synchronize();
                }
                Ok(())
            })
        }
    )*};
}

of_kernels! {
    nvshmemx_cumodule_init CUmodule, true;
    nvshmemx_cumodule_finalize CUmodule, false;
    nvshmemx_culibrary_init CUlibrary, true;
    nvshmemx_culibrary_finalize CUlibrary, false;
}

/// `nvshmemx_collective_launch`.
pub unsafe extern "C" fn gpucommNvshmemCollectiveLaunch(
    kernel: *const c_void,
    grid: *const c_uint,
    block: *const c_uint,
    _args: *mut *mut c_void,
    _shared: usize,
    _stream: cudaStream_t,
) -> c_int {
    status("nvshmemx_collective_launch", Class::Enqueues, || {
        if grid.is_null() || block.is_null() {
            return Err(wrong("the grid or the block is null"));
        }
        no_kernel(kernel)
    })
}

/// `nvshmemx_collective_launch_attr`.
pub unsafe extern "C" fn gpucommNvshmemCollectiveLaunchConfig(
    config: *const c_void,
    kernel: *const c_void,
    _args: *mut *mut c_void,
) -> c_int {
    status("nvshmemx_collective_launch_attr", Class::Enqueues, || {
        if config.is_null() {
            return Err(wrong("the configuration is null"));
        }
        no_kernel(kernel)
    })
}

/// `nvshmemx_collective_launch_query_gridsize`.
pub unsafe extern "C" fn gpucommNvshmemCollectiveLaunchGrid(
    kernel: *const c_void,
    block: *const c_uint,
    _shared: usize,
    blocks: *mut c_int,
) -> c_int {
    status("nvshmemx_collective_launch_query_gridsize", Class::Any, || {
        if block.is_null() || blocks.is_null() {
            return Err(wrong("the block, or the place for the number, is null"));
        }
        no_kernel(kernel)
    })
}

fn no_kernel(kernel: *const c_void) -> Outcome {
    life::pe()?;
    let text = format!("{kernel:p} is no kernel of this device, which runs none: it is emulated");
    Err(refused(NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED, text))
}

pub unsafe extern "C" fn nvshmemx_qp_create(num_qps: c_int, out_qp_array: *mut *mut nvshmemx_qp_handle_t) -> c_int {
    status("nvshmemx_qp_create", Class::Waits, || {
        let made = queue_pairs::create(num_qps)?;
        if out_qp_array.is_null() {
            return Err(wrong("the place for the queue pairs is null"));
        }
        // SAFETY: the caller has a place for a pointer there.
        unsafe { *out_qp_array = made };
        Ok(())
    })
}

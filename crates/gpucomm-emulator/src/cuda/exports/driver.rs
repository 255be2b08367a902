//! The functions of the driver that are looked up by name.

use super::{Out, multicast, vmm};
use crate::cuda::core::device::{current, device};
use crate::cuda::core::driver_lock;
use crate::cuda::core::safety::{Function, functions};
use crate::cuda::core::stream::{self, Stream};
use crate::cuda::frame::guarded;
use crate::cuda::tasks::memset::{self, Shape};
use crate::sys::{CUdeviceptr_v2, CUresult, CUstream, cudaError};
use std::ffi::{CStr, c_int, c_uint, c_ushort, c_void};
use std::sync::Arc;

/// The address of a driver function, or null where the emulator has none of that name.
pub(super) fn entry_point(symbol: &CStr, version: c_uint) -> *mut c_void {
    type D16 = unsafe extern "C" fn(CUdeviceptr_v2, c_ushort, usize, CUstream) -> CUresult;
    type D32 = unsafe extern "C" fn(CUdeviceptr_v2, c_uint, usize, CUstream) -> CUresult;
    type D2D32 = unsafe extern "C" fn(CUdeviceptr_v2, usize, c_uint, usize, usize, CUstream) -> CUresult;
    match symbol.to_bytes() {
        b"cuDevicePrimaryCtxGetState" => {
            let function: unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> CUresult = context_state;
            function as *mut c_void
        }
        b"cuCtxGetCurrent" => {
            let function: unsafe extern "C" fn(*mut *mut c_void) -> CUresult = current_context;
            function as *mut c_void
        }
        b"cuMemsetD16Async" => memset_d16 as D16 as *mut c_void,
        b"cuMemsetD32Async" => memset_d32 as D32 as *mut c_void,
        b"cuMemsetD2D32Async" => memset_d2d32 as D2D32 as *mut c_void,
        _ => {
            let of_multicast = multicast::entry_point(symbol, version);
            if of_multicast.is_null() { vmm::entry_point(symbol) } else { of_multicast }
        }
    }
}

fn memory(address: CUdeviceptr_v2) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn result(function: Function, stream: CUstream, work: impl FnOnce(&Arc<Stream>) -> Result<(), cudaError>) -> CUresult {
    // The codes of both interfaces agree wherever both have one.
    let launch = || {
        let stream = stream::find(stream)?;
        let _shared = driver_lock::shared(stream.device);
        work(&stream)
    };
    CUresult(guarded(function, launch).map_or_else(|error| error.0, |()| 0))
}

/// Of a device that nobody has used there is no context. Nobody looks at what lies at the address.
unsafe extern "C" fn current_context(context: *mut *mut c_void) -> CUresult {
    let asked = guarded(functions::cuCtxGetCurrent, || {
        // SAFETY: as C declares it: a pointer to write to, or null.
        let context = unsafe { Out::new(context)? };
        let device = current()?;
        context.set(if device.is_used() { std::ptr::from_ref(device).cast_mut().cast() } else { std::ptr::null_mut() });
        Ok(())
    });
    CUresult(asked.map_or_else(|error| error.0, |()| 0))
}

unsafe extern "C" fn context_state(ordinal: c_int, flags: *mut c_uint, active: *mut c_int) -> CUresult {
    let asked = guarded(functions::cuDevicePrimaryCtxGetState, || {
        // SAFETY: as C declares it: integers to write to, or null.
        let (flags, active) = unsafe { (Out::new(flags)?, Out::new(active)?) };
        let used = device(ordinal)?.is_used();
        flags.set(0);
        active.set(c_int::from(used));
        Ok(())
    });
    CUresult(asked.map_or_else(|error| error.0, |()| 0))
}

unsafe extern "C" fn memset_d16(dst: CUdeviceptr_v2, value: c_ushort, count: usize, stream: CUstream) -> CUresult {
    let function = functions::cuMemsetD16Async;
    result(function, stream, |stream| memset::fill(function.name, memory(dst), value, Shape::row(count), stream))
}

unsafe extern "C" fn memset_d32(dst: CUdeviceptr_v2, value: c_uint, count: usize, stream: CUstream) -> CUresult {
    let function = functions::cuMemsetD32Async;
    result(function, stream, |stream| memset::fill(function.name, memory(dst), value, Shape::row(count), stream))
}

unsafe extern "C" fn memset_d2d32(
    dst: CUdeviceptr_v2,
    pitch: usize,
    value: c_uint,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CUresult {
    let shape = Shape { pitch, width, height };
    let function = functions::cuMemsetD2D32Async;
    result(function, stream, |stream| memset::fill(function.name, memory(dst), value, shape, stream))
}

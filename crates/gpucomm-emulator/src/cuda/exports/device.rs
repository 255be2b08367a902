//! Devices, versions and errors.

use super::super::error;
use super::driver;
use super::{Out, runtime};
use crate::cuda::core::device::{self, current, current_device, device, device_count, set_current};
use crate::cuda::core::safety::functions;
use crate::report;
use crate::settings::settings;
use crate::sys::*;
use crate::visible::uuid;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

pub unsafe extern "C" fn cudaGetErrorName(error: cudaError_t) -> *const c_char {
    error::texts(error).0.as_ptr()
}

pub unsafe extern "C" fn cudaGetErrorString(error: cudaError_t) -> *const c_char {
    error::meaning(error).as_ptr()
}

pub unsafe extern "C" fn cudaGetLastError() -> cudaError_t {
    error::take_last()
}

pub unsafe extern "C" fn cudaDriverGetVersion(version: *mut c_int) -> cudaError_t {
    runtime(functions::cudaDriverGetVersion, || {
        // SAFETY: as C declares it: an `int` to write to, or null.
        unsafe { Out::new(version)? }.set(CUDART_VERSION as c_int);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaRuntimeGetVersion(version: *mut c_int) -> cudaError_t {
    runtime(functions::cudaRuntimeGetVersion, || {
        // SAFETY: as C declares it: an `int` to write to, or null.
        unsafe { Out::new(version)? }.set(CUDART_VERSION as c_int);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaGetDeviceCount(count: *mut c_int) -> cudaError_t {
    runtime(functions::cudaGetDeviceCount, || {
        // SAFETY: as C declares it: an `int` to write to, or null.
        unsafe { Out::new(count)? }.set(device_count());
        if device_count() == 0 { Err(device::none()) } else { Ok(()) }
    })
}

pub unsafe extern "C" fn cudaGetDevice(ordinal: *mut c_int) -> cudaError_t {
    runtime(functions::cudaGetDevice, || {
        // SAFETY: as C declares it: an `int` to write to, or null.
        let out = unsafe { Out::new(ordinal)? };
        out.set(current()?.ordinal);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaSetDevice(ordinal: c_int) -> cudaError_t {
    runtime(functions::cudaSetDevice, || set_current(ordinal))
}

pub unsafe extern "C" fn cudaDeviceGetAttribute(
    value: *mut c_int,
    attr: cudaDeviceAttr,
    ordinal: c_int,
) -> cudaError_t {
    runtime(functions::cudaDeviceGetAttribute, || {
        // SAFETY: as C declares it: an `int` to write to, or null.
        let out = unsafe { Out::new(value)? };
        let value = attribute(attr, device(ordinal)?.number()).ok_or_else(|| {
            report::line(format!("cudaDeviceGetAttribute: attribute {} is not emulated", attr.0));
            cudaError::cudaErrorInvalidValue
        })?;
        out.set(value);
        Ok(())
    })
}

/// What a device says about itself: the figures of a large GPU, and no for whatever would reach
/// beyond what is emulated.
fn attribute(attr: cudaDeviceAttr, number: i32) -> Option<i32> {
    Some(match attr {
        cudaDeviceAttr::cudaDevAttrMaxThreadsPerBlock => 1024,
        cudaDeviceAttr::cudaDevAttrMultiProcessorCount => 132,
        cudaDeviceAttr::cudaDevAttrIntegrated => 0,
        cudaDeviceAttr::cudaDevAttrComputeMode => 0,
        cudaDeviceAttr::cudaDevAttrConcurrentKernels => 1,
        cudaDeviceAttr::cudaDevAttrPciBusId => device::bus(number),
        cudaDeviceAttr::cudaDevAttrPciDeviceId => 0,
        cudaDeviceAttr::cudaDevAttrPciDomainId => 0,
        cudaDeviceAttr::cudaDevAttrGlobalMemoryBusWidth => 5120,
        cudaDeviceAttr::cudaDevAttrL2CacheSize => 50 << 20,
        cudaDeviceAttr::cudaDevAttrAsyncEngineCount => 3,
        cudaDeviceAttr::cudaDevAttrUnifiedAddressing => 1,
        cudaDeviceAttr::cudaDevAttrComputeCapabilityMajor => settings().capabilities.of(number).0,
        cudaDeviceAttr::cudaDevAttrComputeCapabilityMinor => settings().capabilities.of(number).1,
        cudaDeviceAttr::cudaDevAttrManagedMemory => 0,
        cudaDeviceAttr::cudaDevAttrPageableMemoryAccess => 0,
        cudaDeviceAttr::cudaDevAttrMemoryPoolsSupported => 1,
        cudaDeviceAttr::cudaDevAttrGPUDirectRDMASupported => 0,
        _ => return None,
    })
}

pub unsafe extern "C" fn cudaDeviceGetPCIBusId(id: *mut c_char, len: c_int, ordinal: c_int) -> cudaError_t {
    runtime(functions::cudaDeviceGetPCIBusId, || {
        let text = CString::new(device::bus_id(device(ordinal)?.number())).map_err(|_| cudaError::cudaErrorUnknown)?;
        let bytes = text.as_bytes_with_nul();
        if id.is_null() || usize::try_from(len).is_ok_and(|len| len < bytes.len()) || len < 0 {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        // SAFETY: the caller gives `len` bytes at `id`, and the text with its zero is no longer.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), id, bytes.len()) };
        Ok(())
    })
}

pub unsafe extern "C" fn cudaDeviceGetByPCIBusId(ordinal: *mut c_int, id: *const c_char) -> cudaError_t {
    runtime(functions::cudaDeviceGetByPCIBusId, || {
        // SAFETY: as C declares it: an `int` to write to, or null.
        let out = unsafe { Out::new(ordinal)? };
        if id.is_null() {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        // SAFETY: not null, so a C string, as the function is declared.
        let id = unsafe { CStr::from_ptr(id) }.to_str().ok();
        let place = id.and_then(device::place).ok_or(cudaError::cudaErrorInvalidValue)?;
        let mut visible = device::devices().iter();
        let found = visible.find(|device| device::place(&device::bus_id(device.number())) == Some(place));
        out.set(found.ok_or(cudaError::cudaErrorInvalidDevice)?.ordinal);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaDeviceCanAccessPeer(can: *mut c_int, ordinal: c_int, peer: c_int) -> cudaError_t {
    runtime(functions::cudaDeviceCanAccessPeer, || {
        // SAFETY: as C declares it: an `int` to write to, or null.
        let out = unsafe { Out::new(can)? };
        out.set(c_int::from(device(ordinal)?.ordinal != device(peer)?.ordinal));
        Ok(())
    })
}

pub unsafe extern "C" fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> cudaError_t {
    runtime(functions::cudaDeviceEnablePeerAccess, || {
        if flags != 0 {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        let (own, peer) = (current()?, device(peer)?);
        own.check()?;
        peer.check()?;
        own.enable_peer(peer)
    })
}

pub unsafe extern "C" fn cudaDeviceGetP2PAttribute(
    value: *mut c_int,
    attr: cudaDeviceP2PAttr,
    src: c_int,
    dst: c_int,
) -> cudaError_t {
    runtime(functions::cudaDeviceGetP2PAttribute, || {
        // SAFETY: as C declares it: an `int` to write to, or null.
        let out = unsafe { Out::new(value)? };
        if device(src)?.ordinal == device(dst)?.ordinal {
            return Err(cudaError::cudaErrorInvalidDevice);
        }
        out.set(match attr {
            cudaDeviceP2PAttr::cudaDevP2PAttrPerformanceRank => 0,
            cudaDeviceP2PAttr::cudaDevP2PAttrAccessSupported => 1,
            cudaDeviceP2PAttr::cudaDevP2PAttrNativeAtomicSupported => 1,
            cudaDeviceP2PAttr::cudaDevP2PAttrCudaArrayAccessSupported => 0,
            _ => return Err(cudaError::cudaErrorInvalidValue),
        });
        Ok(())
    })
}

pub unsafe extern "C" fn gpucommDeviceInfo(info: *mut gpucommDeviceInfo_t, ordinal: c_int) -> cudaError_t {
    runtime(functions::gpucommDeviceInfo, || {
        // SAFETY: as C declares it: a struct to write to, or null.
        let out = unsafe { Out::new(info)? };
        let number = device(ordinal)?.number();
        let mut name = [0; 256];
        for (to, from) in name.iter_mut().zip(format!("gpucomm emulated GPU {number}").bytes()) {
            *to = from.cast_signed() as c_char;
        }
        out.set(gpucommDeviceInfo_t { name, uuid: uuid(number), totalMemory: settings().memory as usize });
        Ok(())
    })
}

pub unsafe extern "C" fn gpucommDriverEntryPoint(
    function: *mut *mut c_void,
    symbol: *const c_char,
    version: c_uint,
) -> cudaError_t {
    runtime(functions::gpucommDriverEntryPoint, || {
        // SAFETY: as C declares it: a pointer to write to, or null.
        let out = unsafe { Out::new(function)? };
        if symbol.is_null() {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        device(current_device())?;
        // SAFETY: `symbol` is a C string, as the function is declared.
        out.set(driver::entry_point(unsafe { CStr::from_ptr(symbol) }, version));
        Ok(())
    })
}

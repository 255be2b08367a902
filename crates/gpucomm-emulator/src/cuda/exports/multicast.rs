//! Multicast objects: functions of the driver that are looked up by name.

use super::vmm::{FABRIC, FD, driver, no_fabric, no_flags, out, unsupported};
use crate::cuda::core::safety::functions;
use crate::cuda::tasks::multicast::{self, Source};
use crate::memory::fault::Fault;
use crate::memory::multicast::object::Shape;
use crate::settings::settings;
use crate::sys::multicast::*;
use crate::sys::{CUmemGenericAllocationHandle_v1 as Handle, CUresult};
use std::ffi::{CStr, c_int, c_uint, c_void};

/// The versions of CUDA that have these functions, and those of them that name a device.
const FIRST: c_uint = 12010;
const SECOND: c_uint = 13010;

/// The address of a driver function of this file, or null where there is none of that name and version.
pub(super) fn entry_point(symbol: &CStr, version: c_uint) -> *mut c_void {
    let has = &settings().multicast;
    // A version that is newer than the driver is refused.
    if has.old_driver || version < FIRST || version >= SECOND && !has.v2 {
        return std::ptr::null_mut();
    }
    macro_rules! table {
        ($($name:literal $([$versions:expr])?: $type:ident = $function:ident,)*) => {
            match symbol.to_bytes() {
                $($name $(if $versions)? => {
                    // As C declares it, or this does not compile.
                    let function: $type = $function;
                    function as *mut c_void
                })*
                _ => std::ptr::null_mut(),
            }
        };
    }
    table! {
        b"cuMulticastGetGranularity": PFN_cuMulticastGetGranularity = granularity,
        b"cuMulticastCreate": PFN_cuMulticastCreate = create,
        b"cuMulticastAddDevice": PFN_cuMulticastAddDevice = add_device,
        b"cuMulticastBindMem" [version < SECOND]: PFN_cuMulticastBindMem = bind_mem,
        b"cuMulticastBindMem": PFN_cuMulticastBindMem_v2 = bind_mem_of,
        b"cuMulticastBindAddr" [version < SECOND]: PFN_cuMulticastBindAddr = bind_addr,
        b"cuMulticastBindAddr": PFN_cuMulticastBindAddr_v2 = bind_addr_of,
        b"cuMulticastUnbind": PFN_cuMulticastUnbind = unbind,
    }
}

/// What the properties ask for, which the caller of the C function points to.
///
/// # Safety
/// `prop` is null or can be read.
unsafe fn shape(prop: *const CUmulticastObjectProp) -> Result<Shape, Fault> {
    // SAFETY: the caller vouches for it.
    let prop = unsafe { prop.as_ref() }.ok_or_else(|| Fault::value("the properties are null"))?;
    let handles = prop.handleTypes;
    if handles & !u64::from(FD | FABRIC) != 0 {
        return Err(unsupported(format!("handles {handles:#x}, expected {FD:#x}, {FABRIC:#x} or both")));
    }
    Ok(Shape { devices: prop.numDevices, bytes: prop.size as u64, handles: handles as u32 })
}

unsafe extern "C" fn granularity(
    granularity: *mut usize,
    prop: *const CUmulticastObjectProp,
    option: c_uint,
) -> CUresult {
    driver(functions::cuMulticastGetGranularity, || {
        // SAFETY: as C declares it: a `size_t` to write to, and a struct to read.
        let (out, shape) = unsafe { (out(granularity)?, shape(prop)?) };
        let (minimum, recommended) = multicast::granularity(shape.bytes)?;
        match option {
            CU_MULTICAST_GRANULARITY_MINIMUM => out.set(minimum),
            CU_MULTICAST_GRANULARITY_RECOMMENDED => out.set(recommended),
            other => return Err(Fault::value(format!("{other} is no granularity"))),
        }
        Ok(())
    })
}

unsafe extern "C" fn create(handle: *mut Handle, prop: *const CUmulticastObjectProp) -> CUresult {
    driver(functions::cuMulticastCreate, || {
        // SAFETY: as C declares it: a handle to write to, and a struct to read, or null, which the other refuses.
        let (out, shape, flags) = unsafe { (out(handle)?, shape(prop)?, (*prop).flags) };
        no_flags(flags)?;
        if shape.handles & FABRIC != 0 {
            return Err(no_fabric());
        }
        out.set(multicast::create(shape)?);
        Ok(())
    })
}

unsafe extern "C" fn add_device(handle: Handle, device: c_int) -> CUresult {
    driver(functions::cuMulticastAddDevice, || multicast::add(handle, device))
}

fn bind(
    handle: Handle,
    device: Option<c_int>,
    at: usize,
    source: Source,
    size: usize,
    flags: u64,
) -> Result<(), Fault> {
    no_flags(flags)?;
    multicast::bind(handle, device, at as u64, source, size as u64)
}

unsafe extern "C" fn bind_mem(
    handle: Handle,
    at: usize,
    memory: Handle,
    from: usize,
    size: usize,
    flags: u64,
) -> CUresult {
    let source = Source::Memory(memory, from as u64);
    driver(functions::cuMulticastBindMem, || bind(handle, None, at, source, size, flags))
}

unsafe extern "C" fn bind_mem_of(
    handle: Handle,
    device: c_int,
    at: usize,
    memory: Handle,
    from: usize,
    size: usize,
    flags: u64,
) -> CUresult {
    let source = Source::Memory(memory, from as u64);
    driver(functions::cuMulticastBindMem, || bind(handle, Some(device), at, source, size, flags))
}

unsafe extern "C" fn bind_addr(handle: Handle, at: usize, address: u64, size: usize, flags: u64) -> CUresult {
    let source = Source::Address(address as usize);
    driver(functions::cuMulticastBindAddr, || bind(handle, None, at, source, size, flags))
}

unsafe extern "C" fn bind_addr_of(
    handle: Handle,
    device: c_int,
    at: usize,
    address: u64,
    size: usize,
    flags: u64,
) -> CUresult {
    let source = Source::Address(address as usize);
    driver(functions::cuMulticastBindAddr, || bind(handle, Some(device), at, source, size, flags))
}

unsafe extern "C" fn unbind(handle: Handle, device: c_int, at: usize, size: usize) -> CUresult {
    driver(functions::cuMulticastUnbind, || multicast::unbind(handle, device, at as u64, size as u64))
}

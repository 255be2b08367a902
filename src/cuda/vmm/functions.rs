//! The functions of the driver, looked up once.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::cuda::devices::device::Device;
use crate::cuda::devices::driver::entry;
use crate::error::{Error, Result};
use crate::sys;

/// `cuMemCreate` and its kin are of CUDA 10.2.
const VERSION: c_uint = 10020;

/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`.
const SUPPORTED: c_int = 102;

type Attribute = Option<unsafe extern "C" fn(value: *mut c_int, attribute: c_int, device: c_int) -> sys::CUresult>;

/// What a driver has of them.
#[derive(Clone, Copy)]
struct Found {
    attribute: Attribute,
    granularity: sys::PFN_cuMemGetAllocationGranularity_v10020,
    create: sys::PFN_cuMemCreate_v10020,
    release: sys::PFN_cuMemRelease_v10020,
    reserve: sys::PFN_cuMemAddressReserve_v10020,
    free: sys::PFN_cuMemAddressFree_v10020,
    map: sys::PFN_cuMemMap_v10020,
    unmap: sys::PFN_cuMemUnmap_v10020,
    set_access: sys::PFN_cuMemSetAccess_v10020,
    export: sys::PFN_cuMemExportToShareableHandle_v10020,
    import: sys::PFN_cuMemImportFromShareableHandle_v10020,
    properties: sys::PFN_cuMemGetAllocationPropertiesFromHandle_v10020,
}

/// A function as `$type`, or an error of `$operation` that says that the driver has none.
macro_rules! functions {
    ($($name:ident: $symbol:literal, $type:ty;)*) => {$(
        pub(crate) fn $name(operation: &'static str) -> Result<$type> {
            found().$name.ok_or_else(|| missing(operation, $symbol))
        }
    )*};
}

functions! {
    granularity: "cuMemGetAllocationGranularity", unsafe extern "C" fn(*mut usize, *const sys::CUmemAllocationProp_v1, sys::CUmemAllocationGranularity_flags) -> sys::CUresult;
    create: "cuMemCreate", unsafe extern "C" fn(*mut u64, usize, *const sys::CUmemAllocationProp_v1, u64) -> sys::CUresult;
    release: "cuMemRelease", unsafe extern "C" fn(u64) -> sys::CUresult;
    reserve: "cuMemAddressReserve", unsafe extern "C" fn(*mut u64, usize, usize, u64, u64) -> sys::CUresult;
    free: "cuMemAddressFree", unsafe extern "C" fn(u64, usize) -> sys::CUresult;
    map: "cuMemMap", unsafe extern "C" fn(u64, usize, usize, u64, u64) -> sys::CUresult;
    unmap: "cuMemUnmap", unsafe extern "C" fn(u64, usize) -> sys::CUresult;
    set_access: "cuMemSetAccess", unsafe extern "C" fn(u64, usize, *const sys::CUmemAccessDesc_v1, usize) -> sys::CUresult;
    export: "cuMemExportToShareableHandle", unsafe extern "C" fn(*mut c_void, u64, sys::CUmemAllocationHandleType, u64) -> sys::CUresult;
    import: "cuMemImportFromShareableHandle", unsafe extern "C" fn(*mut u64, *mut c_void, sys::CUmemAllocationHandleType) -> sys::CUresult;
    properties: "cuMemGetAllocationPropertiesFromHandle", unsafe extern "C" fn(*mut sys::CUmemAllocationProp_v1, u64) -> sys::CUresult;
}

#[cold]
fn missing(operation: &'static str, symbol: &str) -> Error {
    Error::Unsupported { operation, needs: format!("a driver that has {symbol}, of CUDA 10.2 or newer") }
}

fn found() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| {
        macro_rules! look_up {
            ($symbol:literal as $type:ty) => {
                // SAFETY: the function of this name and of CUDA 10.2 has the type that cudaTypedefs.h gives it under the suffix
                // _v10020 (`cuDeviceGetAttribute`: that of cuda.h, enumerations and devices being integers of C); a null pointer is
                // `None`.
                unsafe { std::mem::transmute::<*mut c_void, $type>(entry($symbol, VERSION)) }
            };
        }
        Found {
            attribute: look_up!(c"cuDeviceGetAttribute" as Attribute),
            granularity: look_up!(c"cuMemGetAllocationGranularity" as sys::PFN_cuMemGetAllocationGranularity_v10020),
            create: look_up!(c"cuMemCreate" as sys::PFN_cuMemCreate_v10020),
            release: look_up!(c"cuMemRelease" as sys::PFN_cuMemRelease_v10020),
            reserve: look_up!(c"cuMemAddressReserve" as sys::PFN_cuMemAddressReserve_v10020),
            free: look_up!(c"cuMemAddressFree" as sys::PFN_cuMemAddressFree_v10020),
            map: look_up!(c"cuMemMap" as sys::PFN_cuMemMap_v10020),
            unmap: look_up!(c"cuMemUnmap" as sys::PFN_cuMemUnmap_v10020),
            set_access: look_up!(c"cuMemSetAccess" as sys::PFN_cuMemSetAccess_v10020),
            export: look_up!(c"cuMemExportToShareableHandle" as sys::PFN_cuMemExportToShareableHandle_v10020),
            import: look_up!(c"cuMemImportFromShareableHandle" as sys::PFN_cuMemImportFromShareableHandle_v10020),
            properties: look_up!(
                c"cuMemGetAllocationPropertiesFromHandle" as sys::PFN_cuMemGetAllocationPropertiesFromHandle_v10020
            ),
        }
    })
}

/// To be called before calls that concern `device`: it can do all this, or there is an error.
pub(crate) fn ready(operation: &'static str, device: Device) -> Result<()> {
    device.ready(operation)?;
    let mut supported = 0;
    // SAFETY: writes one integer to the address given. The handle of a device in the driver is its ordinal.
    let known = |attribute: unsafe extern "C" fn(_, _, _) -> _| unsafe {
        attribute(&raw mut supported, SUPPORTED, device.ordinal())
    };
    match found().attribute.map(known) {
        Some(sys::CUresult(0)) if supported == 0 => Err(Error::Unsupported {
            operation,
            needs: format!("virtual memory management, which {device} has not (attribute {SUPPORTED})"),
        }),
        _ => Ok(()),
    }
}

/// The code of the runtime for one of the driver: they agree wherever both have one.
pub(crate) fn code(result: sys::CUresult) -> sys::cudaError {
    sys::cudaError(result.0)
}

//! Driver functions that have no form in the runtime, looked up when they are first needed.
//!
//! The crate links no libcuda: a program that uses it starts on a machine without a driver.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::sys;

/// The driver function `symbol` as of CUDA `version`, or null where the driver has none.
pub(crate) fn entry(symbol: &CStr, version: c_uint) -> *mut c_void {
    let mut function = std::ptr::null_mut();
    // SAFETY: writes one pointer to the address given and reads a C string.
    let code = unsafe { sys::gpucommDriverEntryPoint(&raw mut function, symbol.as_ptr(), version) };
    if code != sys::cudaError::cudaSuccess {
        // SAFETY: takes nothing; forgets the error of the call above.
        let _ = unsafe { sys::cudaGetLastError() };
        return std::ptr::null_mut();
    }
    function
}

/// `cuMemsetD16Async`, `cuMemsetD32Async` and `cuMemsetD2D32Async`; each is `None` where the driver has none.
#[derive(Clone, Copy, Default)]
pub(crate) struct Memset {
    pub(crate) d16: sys::PFN_cuMemsetD16Async_v3020,
    pub(crate) d32: sys::PFN_cuMemsetD32Async_v3020,
    pub(crate) d2d32: sys::PFN_cuMemsetD2D32Async_v3020,
}

/// The fills of the driver.
pub(crate) fn memset() -> Memset {
    static FOUND: OnceLock<Memset> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: the entry points of these names and of CUDA 3.2 have the types that cudaTypedefs.h gives them under
        // the suffix _v3020; a null pointer is `None`.
        unsafe {
            Memset {
                d16: std::mem::transmute::<*mut c_void, sys::PFN_cuMemsetD16Async_v3020>(entry(
                    c"cuMemsetD16Async",
                    3020,
                )),
                d32: std::mem::transmute::<*mut c_void, sys::PFN_cuMemsetD32Async_v3020>(entry(
                    c"cuMemsetD32Async",
                    3020,
                )),
                d2d32: std::mem::transmute::<*mut c_void, sys::PFN_cuMemsetD2D32Async_v3020>(entry(
                    c"cuMemsetD2D32Async",
                    3020,
                )),
            }
        }
    })
}

type Retain = Option<unsafe extern "C" fn(handle: *mut u64, address: *mut c_void) -> c_uint>;
type Release = Option<unsafe extern "C" fn(handle: u64) -> c_uint>;
type AddressRange = Option<unsafe extern "C" fn(base: *mut u64, bytes: *mut usize, address: u64) -> c_uint>;

/// Wraps `cuMemRetainAllocationHandle` and `cuMemGetAddressRange`: where the memory begins that was mapped as one with this address in it,
/// and its bytes. `None` for memory that was allocated otherwise, and where that cannot be known: the thread has to be bound to a
/// device.
pub(crate) fn mapping(address: *mut c_void) -> Option<(usize, usize)> {
    retained(address, |_| range(address))?
}

/// Wraps `cuMemRetainAllocationHandle`: what `ask` says of the handle of the memory that is mapped at this address. `None` as with
/// [`mapping`].
pub(crate) fn retained<R>(address: *mut c_void, ask: impl FnOnce(u64) -> R) -> Option<R> {
    static FOUND: OnceLock<(Retain, Release)> = OnceLock::new();
    let (retain, release) = *FOUND.get_or_init(|| {
        // SAFETY: the functions of these names and of CUDA 11.0 and 10.2 have these types (`CUmemGenericAllocationHandle` is an integer of
        // 64 bits, `CUresult` is one of C); a null pointer is `None`.
        unsafe {
            (
                std::mem::transmute::<*mut c_void, Retain>(entry(c"cuMemRetainAllocationHandle", 11000)),
                std::mem::transmute::<*mut c_void, Release>(entry(c"cuMemRelease", 10020)),
            )
        }
    });
    let (retain, release) = (retain?, release?);
    let mut handle = 0;
    // SAFETY: writes a handle to the address given; any address may be asked for.
    if unsafe { retain(&raw mut handle, address) } != 0 {
        return None;
    }
    let answer = ask(handle);
    // SAFETY: the handle from above, once.
    let _ = unsafe { release(handle) };
    Some(answer)
}

/// Wraps `cuMemGetAddressRange`: where the memory begins that was allocated, or mapped, as one with this address in it, and its bytes.
/// `None` where that cannot be known: the thread has to be bound to a device.
pub(crate) fn range(address: *mut c_void) -> Option<(usize, usize)> {
    static FOUND: OnceLock<AddressRange> = OnceLock::new();
    let range = (*FOUND.get_or_init(|| {
        // SAFETY: the function of this name and of CUDA 3.2 has this type (`CUdeviceptr` is an integer of 64 bits); a null pointer is `None`.
        unsafe { std::mem::transmute::<*mut c_void, AddressRange>(entry(c"cuMemGetAddressRange", 3020)) }
    }))?;
    let (mut base, mut bytes) = (0, 0);
    // SAFETY: writes to the two places given; any address may be asked for.
    let found = unsafe { range(&raw mut base, &raw mut bytes, address.addr() as u64) } == 0;
    found.then_some((base as usize, bytes))
}

type CurrentContext = Option<unsafe extern "C" fn(context: *mut *mut c_void) -> c_uint>;

/// Wraps `cuCtxGetCurrent`: the context of this thread, by its address; 0 where it has none, or that cannot be known. Some ten nanoseconds, where
/// `cudaGetDevice` takes some two hundred.
pub(crate) fn context() -> usize {
    static FOUND: OnceLock<CurrentContext> = OnceLock::new();
    let found = *FOUND.get_or_init(|| {
        // SAFETY: the function of this name and of CUDA 4.0 has this type (`CUcontext` is a pointer, `CUresult` an integer of C); a null
        // pointer is `None`.
        unsafe { std::mem::transmute::<*mut c_void, CurrentContext>(entry(c"cuCtxGetCurrent", 4000)) }
    });
    let Some(current) = found else { return 0 };
    let mut context = std::ptr::null_mut();
    // SAFETY: writes one pointer to the address given.
    if unsafe { current(&raw mut context) } == 0 { context.addr() } else { 0 }
}

type ContextState = Option<unsafe extern "C" fn(device: c_int, flags: *mut c_uint, active: *mut c_int) -> c_uint>;

/// Wraps `cuDevicePrimaryCtxGetState`: whether this process already uses the device. `true` where that cannot be known.
pub(crate) fn in_use(device: c_int) -> bool {
    static FOUND: OnceLock<ContextState> = OnceLock::new();
    let found = *FOUND.get_or_init(|| {
        // SAFETY: the function of this name and of CUDA 7.0 has this type (`CUdevice` and `CUresult` are integers of
        // C); a null pointer is `None`.
        unsafe { std::mem::transmute::<*mut c_void, ContextState>(entry(c"cuDevicePrimaryCtxGetState", 7000)) }
    });
    let Some(state) = found else { return true };
    let (mut flags, mut active) = (0, 0);
    // SAFETY: writes two integers to the addresses given. The handle of a device in the driver is its ordinal.
    let code = unsafe { state(device, &raw mut flags, &raw mut active) };
    code != 0 || active != 0
}

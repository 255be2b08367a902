//! The functions of the driver, looked up once, and what their codes mean.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::cuda::devices::check::check_on;
use crate::cuda::devices::device::Device;
use crate::cuda::devices::driver::entry;
use crate::cuda::vmm::functions::code;
use crate::error::{Error, Result};
use crate::refusal::Refusal;
use crate::sys;
use crate::sys::multicast as c;

/// The version of CUDA that brought them, and that of those which name the device.
const FIRST: c_uint = 12010;
const SECOND: c_uint = 13010;

type Attribute = unsafe extern "C" fn(value: *mut c_int, attribute: c_int, device: c_int) -> sys::CUresult;

/// What binds memory by its handle.
#[derive(Clone, Copy)]
pub(super) enum BindMemory {
    /// For the device that holds the memory.
    First(c::PFN_cuMulticastBindMem),
    /// For a device that is named.
    Second(c::PFN_cuMulticastBindMem_v2),
}

/// What binds memory by its address.
#[derive(Clone, Copy)]
pub(super) enum BindAddress {
    First(c::PFN_cuMulticastBindAddr),
    Second(c::PFN_cuMulticastBindAddr_v2),
}

/// What a driver has of them.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) granularity: c::PFN_cuMulticastGetGranularity,
    pub(super) create: c::PFN_cuMulticastCreate,
    pub(super) add: c::PFN_cuMulticastAddDevice,
    pub(super) bind_memory: BindMemory,
    pub(super) bind_address: BindAddress,
    pub(super) unbind: c::PFN_cuMulticastUnbind,
}

/// Looks a function up, as `$version` has it.
macro_rules! look_up {
    ($symbol:literal, $version:expr, $type:ty) => {
        // SAFETY: the function of this name has this type since this version of CUDA, as cuda.h declares it; a null pointer is `None`.
        unsafe { std::mem::transmute::<*mut c_void, Option<$type>>(entry($symbol, $version)) }
    };
}

/// Whether the driver has two versions of a function. One that is older than a version refuses to look for it; a runtime before 12.5 does not
/// ask for versions, and finds the first one again.
fn has_second(symbol: &CStr) -> bool {
    let second = entry(symbol, SECOND);
    !second.is_null() && second != entry(symbol, FIRST)
}

fn found() -> Option<&'static Functions> {
    static FOUND: OnceLock<Option<Functions>> = OnceLock::new();
    let find = || {
        let bind_memory = if has_second(c"cuMulticastBindMem") {
            BindMemory::Second(look_up!(c"cuMulticastBindMem", SECOND, c::PFN_cuMulticastBindMem_v2)?)
        } else {
            BindMemory::First(look_up!(c"cuMulticastBindMem", FIRST, c::PFN_cuMulticastBindMem)?)
        };
        let bind_address = if has_second(c"cuMulticastBindAddr") {
            BindAddress::Second(look_up!(c"cuMulticastBindAddr", SECOND, c::PFN_cuMulticastBindAddr_v2)?)
        } else {
            BindAddress::First(look_up!(c"cuMulticastBindAddr", FIRST, c::PFN_cuMulticastBindAddr)?)
        };
        Some(Functions {
            granularity: look_up!(c"cuMulticastGetGranularity", FIRST, c::PFN_cuMulticastGetGranularity)?,
            create: look_up!(c"cuMulticastCreate", FIRST, c::PFN_cuMulticastCreate)?,
            add: look_up!(c"cuMulticastAddDevice", FIRST, c::PFN_cuMulticastAddDevice)?,
            bind_memory,
            bind_address,
            unbind: look_up!(c"cuMulticastUnbind", FIRST, c::PFN_cuMulticastUnbind)?,
        })
    };
    FOUND.get_or_init(find).as_ref()
}

/// The functions, for `operation`.
pub(super) fn functions(operation: &'static str) -> Result<&'static Functions> {
    let missing = "a driver, and a runtime that finds its functions, that have cuMulticastCreate were expected";
    found().ok_or_else(|| refused(operation, Refusal::DriverTooOld, missing))
}

/// An [`Error::Multicast`].
pub(super) fn refused(operation: &'static str, why: Refusal, detail: impl std::fmt::Display) -> Error {
    Error::Multicast { operation, why, detail: detail.to_string() }
}

/// Why there is no multicast on a device, as far as attributes say.
pub(super) fn why_not(operation: &'static str, device: Device) -> Result<Option<Refusal>> {
    device.ready(operation)?;
    if found().is_none() {
        return Ok(Some(Refusal::DriverTooOld));
    }
    let Some(attribute) = look_up!(c"cuDeviceGetAttribute", 10020, Attribute) else {
        return Ok(Some(Refusal::DriverTooOld));
    };
    let mut supported = 0;
    // SAFETY: writes one integer to the address given. The handle of a device in the driver is its ordinal.
    let result = unsafe { attribute(&raw mut supported, c::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device.ordinal()) };
    check_on(device.ordinal(), "cuDeviceGetAttribute", code(result))?;
    Ok((supported == 0).then_some(Refusal::NotSupported))
}

/// What is missing where fabric handles are not to be had.
pub(super) fn no_fabric(operation: &'static str) -> Error {
    let needs = "a fabric that this process may use, for fabric handles: an IMEX channel".to_owned();
    Error::Unsupported { operation, needs }
}

/// What a call of `function` came to, which was to do `what` and concerns `device`.
pub(super) fn check(
    function: &'static str,
    device: Device,
    result: sys::CUresult,
    what: impl FnOnce() -> String,
) -> Result<()> {
    let why = match (result.0, function) {
        (0, _) => return Ok(()),
        // Other calls are not refused for a fabric: what they say is what CUDA says.
        (800, "cuMemExportToShareableHandle" | "cuMemImportFromShareableHandle") => return Err(no_fabric(function)),
        (2, _) => Refusal::OutOfMemory,
        (47, _) => Refusal::ResourcesExhausted,
        (401, _) => Refusal::FabricState,
        (802, _) => Refusal::NotReady,
        (801, "cuMulticastGetGranularity" | "cuMulticastCreate") => Refusal::NotSupported,
        // What else can be wrong with a device is looked at before.
        (1 | 101 | 801, "cuMulticastAddDevice") => Refusal::NotConnected,
        _ => return check_on(device.ordinal(), function, code(result)),
    };
    // Forgets what the runtime may remember of it, and puts the code in words.
    let said = check_on(device.ordinal(), function, code(result)).err().map(|error| error.to_string());
    let said = said.unwrap_or_default();
    Err(refused(function, why, format_args!("{} on {device}: error {} ({said})", what(), result.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a code of a call is taken for, without any call.
    #[test]
    fn codes_that_mean_other_things_elsewhere() {
        let Ok(device) = Device::new(0) else { return };
        let what = |function, code| check(function, device, sys::CUresult(code), String::new).unwrap_err();
        for function in ["cuMemExportToShareableHandle", "cuMemImportFromShareableHandle"] {
            assert!(matches!(what(function, 800), Error::Unsupported { .. }));
        }
        for function in ["cuMulticastCreate", "cuMulticastAddDevice", "cuMulticastBindMem", "cuMemMap"] {
            assert!(matches!(what(function, 800), Error::Cuda { code: crate::CudaCode(800), .. }), "{function}");
        }
    }
}

//! Versions of what is installed.

use super::check::check;
use super::device::outside_host_functions;
use crate::error::Result;
use crate::sys;

/// Wraps `cudaDriverGetVersion`: the newest CUDA version that the driver supports, 13000 for 13.0; 0 without a driver.
///
/// # Errors
/// What CUDA says.
pub fn driver_version() -> Result<i32> {
    outside_host_functions("driver_version")?;
    let mut version = 0;
    // SAFETY: writes one integer to the address given.
    check("cudaDriverGetVersion", unsafe { sys::cudaDriverGetVersion(&raw mut version) })?;
    Ok(version)
}

/// Wraps `cudaRuntimeGetVersion`: the version of the CUDA runtime, 13000 for 13.0.
///
/// # Errors
/// What CUDA says.
pub fn runtime_version() -> Result<i32> {
    outside_host_functions("runtime_version")?;
    let mut version = 0;
    // SAFETY: writes one integer to the address given.
    check("cudaRuntimeGetVersion", unsafe { sys::cudaRuntimeGetVersion(&raw mut version) })?;
    Ok(version)
}
